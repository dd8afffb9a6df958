"""The flodl command, one file a subcommand."""
