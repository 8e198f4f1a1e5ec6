"""The learner: makes its model better with what the actors send, and gives it to them. `gpusched launch` starts it.

It saves weights.npz in the directory of the job. When it is killed and started again, it goes on from there.
"""

import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusched import runtime
from gpusched.channel import ChannelError, Learner, Progress
from gpusched.template.settings import Settings

__all__ = ["Model", "main"]

EVERY_S = 0.25  # between two reports, each with the weights saved


class Model:
    """Put your own model here: what is learnt, from what, and how it is saved.

    This one prefers the arms that pay more than the mean (Sutton and Barto, Reinforcement Learning, section 2.8).
    A model of PyTorch, JAX or TensorFlow gives its parameters as NumPy arrays, by name.
    """

    def __init__(self, arms: int) -> None:
        self.updates = 0
        self.score = 0.0  # what a pull pays in the mean
        self._preferences = np.zeros(arms)

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return what actors need to play, by name."""
        return {"preferences": self._preferences}

    def learn(self, played: Mapping[str, NDArray[Any]]) -> None:
        """Learn from one batch: `pulled` arms (int64) and what they `paid` (float64)."""
        pulled, paid = played["pulled"], played["paid"]
        self.score += (0.02 if self.updates else 1.0) * (paid.mean() - self.score)
        chances = np.exp(self._preferences - self._preferences.max())
        gain = np.bincount(pulled, paid - self.score, minlength=chances.size)
        self._preferences += 0.01 * (gain - gain.sum() * chances / chances.sum()) / pulled.size
        self.updates += 1

    def save(self, path: Path) -> None:
        """Write all that is needed to go on: the whole file or, if this process dies meanwhile, the former one."""
        draft = path.with_name(f"draft-{path.name}")
        np.savez(draft, updates=self.updates, score=self.score, preferences=self._preferences)
        draft.replace(path)

    def load(self, path: Path) -> None:
        """Go on from what was saved."""
        with np.load(path) as saved:
            self.updates, self.score = int(saved["updates"]), float(saved["score"])
            self._preferences = saved["preferences"]


def main() -> None:
    """Learn until the model has had its updates, or a person stops the job."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    model, saved = Model(settings.arms), me.run_dir / "weights.npz"
    if saved.exists():
        model.load(saved)
        print(f"going on after {model.updates} updates", flush=True)
    with Learner() as channel:
        signal.signal(signal.SIGTERM, lambda *_: channel.stop())
        learn(channel, model, settings.updates, saved)
    model.save(saved)


def learn(channel: Learner, model: Model, updates: int, saved: Path) -> None:
    """Learn from batches in the order in which they come, from any actor."""
    progress, since, came = Progress(), time.monotonic(), Counter[str]()
    channel.publish(model.weights())
    while model.updates < updates and (batch := channel.get()) is not None:  # None: stop() was called
        model.learn(batch.arrays)
        channel.publish(model.weights())
        came[batch.actor] += 1
        now = time.monotonic()
        if now - since >= EVERY_S or model.updates in (1, updates):
            speeds = {actor: {"steps_per_s": count / (now - since)} for actor, count in came.items()}
            speed = came.total() / (now - since)
            done = model.updates / updates  # by this the queue knows when the job ends
            progress.report(step=model.updates, steps_per_s=speed, score=model.score, done=done, replicas=speeds)
            model.save(saved)
            came.clear()
            since = now


if __name__ == "__main__":
    try:
        main()
    except ChannelError as error:
        sys.exit(str(error))
