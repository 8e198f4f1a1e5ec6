"""Values that every other package shares: no I/O, no clock, no environment."""
