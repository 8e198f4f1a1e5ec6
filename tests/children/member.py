"""An actor of a learner on another node: it sends a batch and waits; with `hang` it is stopped for good instead."""

import os
import signal
import sys
from contextlib import suppress

import numpy as np

from gpusched.channel import Actor, LearnerGone

with Actor() as actor, suppress(LearnerGone):
    actor.send({"x": np.zeros(1, np.uint8)})
    if "hang" in sys.argv:
        os.kill(os.getpid(), signal.SIGSTOP)
    actor.weights()
