"""The page in the browser: a server of its own beside the daemon, which reads through the API alone."""
