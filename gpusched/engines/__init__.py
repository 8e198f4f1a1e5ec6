"""What starts the processes of a job: this host, or a cluster of hosts."""
