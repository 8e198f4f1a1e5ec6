"""The engine `slurm`: a job is a batch script of Slurm, and each node a task of it."""
