"""Leases: which job holds how much of which device now, as files that a lock keeps alive."""
