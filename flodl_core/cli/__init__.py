"""The `flodl` command: one file a subcommand, nothing heavy before it is needed."""
