"""What stands in a process's place: one command of the queue, with this process's terminal, signals and exit code."""
