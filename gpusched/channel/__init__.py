"""The channel between a learner and its actors: batches of named arrays one way, weights the other.

    with Learner() as learner:                  with Actor() as actor:
        learner.publish(weights)                    while True:
        for batch in learner:                           weights = actor.weights()
            ...                                         actor.send({"states": states})

Make these objects after a fork or an exec, in the process that uses them.
"""

from gpusched.channel.actor import Actor, Answer
from gpusched.channel.learner import Learner
from gpusched.channel.progress import Progress
from gpusched.channel.values import ActorStatus, Batch, Limits, Weights
from gpusched.errors import ChannelError, LearnerGone, NotLaunched

__all__ = [
    "Actor",
    "ActorStatus",
    "Answer",
    "Batch",
    "ChannelError",
    "Learner",
    "LearnerGone",
    "Limits",
    "NotLaunched",
    "Progress",
    "Weights",
]
