"""The command line: one file per command, and what draws its answer."""
