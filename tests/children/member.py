"""An actor of a learner on another node: it sends one batch, and waits until it is told that the learner is gone."""

from contextlib import suppress

import numpy as np

from gpusched.channel import Actor, LearnerGone

with Actor() as actor, suppress(LearnerGone):
    actor.send({"x": np.zeros(1, np.uint8)})
    actor.weights()
