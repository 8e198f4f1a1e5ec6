"""A workload: actors pull the arms of a bandit, and a learner finds out which arm pays most."""
