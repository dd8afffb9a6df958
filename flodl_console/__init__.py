"""The terminal console of flodl: watch a run, close its window, act on it, replay it."""
