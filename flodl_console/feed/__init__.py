"""Where records come from: a live run, a recorded one, a made-up one."""
