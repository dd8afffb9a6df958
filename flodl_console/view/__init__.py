"""Pure folds: records in, what is on screen out; no terminal library."""
