"""A job on disk: its directory, its spec, its status, orders to its supervisor, and how it is started and stopped."""
