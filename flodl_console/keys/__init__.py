"""The actions of the console, a list for each screen; each is a key, a tooltip and a call."""
