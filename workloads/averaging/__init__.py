"""Averaging: actors train on shares of the data, the learner averages their weights or their gradients."""
