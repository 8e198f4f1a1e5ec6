"""What every cluster shares: the part of a job on one node, and the record of all nodes on the submitting host."""
