"""The supervisor: the process that owns the replicas of one job, the guard beside it, and the job's directory."""
