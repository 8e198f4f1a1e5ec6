"""The sections of the bench, a table each."""
