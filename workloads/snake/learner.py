"""The learner: learns from whatever the actors play. `gpusched launch snake` starts it.

With `--inference actor` they send what they played, and it publishes its weights; with `--inference learner` they ask
it for every step (central_inference.py). With `--algo genetic` they ask for genomes and send scores
(genetic/breeding.py).

Owns what is in the run's directory: weights.npz, scores.csv, tensorboard/, and from the end on learning_curve.png,
game.gif and evaluation.json.
"""

import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import keras
from numpy.typing import NDArray

from gpusched import runtime
from gpusched.channel import Learner, Limits, Progress
from gpusched.frameworks import limit_memory
from workloads.common.chance import chance_of
from workloads.common.ending import ends_with_reason
from workloads.common.weights import Weights
from workloads.snake.algorithm import Experience, Played
from workloads.snake.central_inference import Central
from workloads.snake.checkpoint import load_network
from workloads.snake.evaluate import GAMES, evaluate
from workloads.snake.exploring import explored_from
from workloads.snake.genetic.algorithm import Genetic
from workloads.snake.genetic.breeding import Breeding
from workloads.snake.networks import judge_any_number, layout_of
from workloads.snake.player import HALVES
from workloads.snake.rollout import rollout_from
from workloads.snake.settings import Inference, Settings
from workloads.snake.training import Training

__all__ = ["main"]

_LOOK_UP_EVERY_S: Final = 0.5
_IN_FLIGHT: Final[dict[Inference, int]] = {"actor": 1, "learner": HALVES}
"""A rollout that waits grows old while an actor plays the next: one is enough. An ask of each half may be out."""

Unpack = Callable[[Mapping[str, NDArray[Any]]], Experience]


@ends_with_reason(OSError)
def main() -> None:
    """Learn until a limit of the settings is reached or SIGTERM comes; leave weights and pictures."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    limit_memory()
    if settings.evaluate:
        evaluate_saved(Path(settings.evaluate), me.run_dir)
        return
    training = Training(settings, me.run_dir, me.attempt)
    training.end_at_sigterm()
    with Learner(limits=Limits(in_flight=_IN_FLIGHT[settings.inference])) as channel:
        run(training, source_of(training, channel, settings, me.attempt))
    training.finish()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # all is saved: whoever asks for the end now gets it at once
    if not training.stop_asked:
        training.evaluate()


def evaluate_saved(weights: Path, run_dir: Path) -> None:
    """Play greedy games with saved weights; leave and tell what they gave. Raises UnusableWeights, OSError."""
    model, counts = load_network(weights)
    runtime.report_ready()
    progress = Progress()

    def tell(note: str) -> None:
        print(note, flush=True)
        progress.report(step=counts.steps, note=note)

    tell(f"playing {GAMES} greedy games with {weights}")
    tell(evaluate(model, counts, run_dir))


class Sent:
    """What actors play by themselves, with the weights that they are given. `unpack` makes it of what they send."""

    def __init__(self, channel: Learner, model: keras.Model, unpack: Unpack) -> None:
        self._channel, self._weights, self._unpack = channel, Weights(model), unpack
        self.learnt()

    def next(self, timeout: float) -> Played | None:
        """Return what came next, None if nothing comes; say so, and leave it out, if a batch is none."""
        batch = self._channel.get(timeout)
        if batch is None:
            return None
        try:
            return Played(batch.actor, self._unpack(batch.arrays))
        except ValueError as error:
            print(f"a batch of {batch.actor} is left out: {error}", file=sys.stderr, flush=True)
            return None

    def learnt(self) -> None:
        """Give the actors the new weights."""
        self._channel.publish(self._weights.get())


def run(training: Training, source: Sent | Central | Breeding) -> None:
    """Learn from what is played in the order it comes, whoever played it, until training is done."""
    while not training.done:
        played = source.next(_LOOK_UP_EVERY_S)
        if played is not None:
            training.learn(played)
            source.learnt()
        training.keep()


def source_of(training: Training, channel: Learner, settings: Settings, attempt: int) -> Sent | Central | Breeding:
    """Return where what is learnt from comes from."""
    if isinstance(training.algorithm, Genetic):
        runtime.report_ready()
        return Breeding(channel, training.algorithm)
    if settings.inference == "actor":
        unpack = rollout_from if settings.algo == "a2c" else explored_from
        return Sent(channel, training.model, partial(unpack, size=layout_of(training.model).size))
    random = chance_of("answers", settings.seed, attempt)
    runtime.report_ready()
    return Central(channel, partial(judge_any_number, training.model), settings.steps_of_rollout, random)


if __name__ == "__main__":
    main()
