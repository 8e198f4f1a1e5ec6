"""The jobs of all time: in memory while they live, and in the SQLite database of the daemon. See store.py."""
