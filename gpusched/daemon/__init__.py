"""The daemon: one process per user that holds the queue, starts jobs, and finds them again after its own restart."""
