"""Who is in the world: admission, window, ledger, snapshot. Pure."""
