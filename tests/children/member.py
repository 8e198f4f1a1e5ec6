"""An actor of a learner on another node: it sends batches and waits; with `hang` it is stopped for good instead."""

import os
import signal
import sys
from contextlib import suppress

import numpy as np

from gpusched.channel import Actor, LearnerGone

with Actor() as actor, suppress(LearnerGone):
    for _ in range(3):  # two may be under way: after the third the learner has taken one, so this actor knows it
        actor.send({"x": np.zeros(1, np.uint8)})
    if "hang" in sys.argv:
        os.kill(os.getpid(), signal.SIGSTOP)
    actor.weights()
