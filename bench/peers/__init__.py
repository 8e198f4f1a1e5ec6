"""The peers of the bench: what the original and others do, re-created or run as they are."""
