"""Cartpole: Gymnasium's CartPole-v1 by deep Q-learning, of one learner's or of every actor's own, averaged."""
