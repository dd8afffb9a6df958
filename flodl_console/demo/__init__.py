"""A made-up cluster: scenarios that are a pure function of their name, a seed and the time."""
