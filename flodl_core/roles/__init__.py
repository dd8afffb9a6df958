"""The loops: launcher, agent, relay, rank. They act and decide nothing."""
