"""What this project measures of itself; nothing of it is a test, for times belong to a machine."""
