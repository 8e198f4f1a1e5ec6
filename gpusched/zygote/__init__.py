"""The zygote: a process that imports once what a job's replicas need, and of which they are forked."""
