"""Workloads that gpusched brings: each folder is one, flat, to be copied and changed."""
