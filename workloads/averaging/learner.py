"""The learner: averages what all actors contribute, round by round. `gpusched launch averaging` starts it.

Owns what is in the run's directory: weights.npz, curve.csv and tensorboard/.
"""

import signal
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpusched import runtime
from gpusched.channel import Batch, Learner, Limits
from gpusched.frameworks import limit_memory
from workloads.averaging.record import COLUMNS, Counts
from workloads.averaging.settings import Settings
from workloads.averaging.training import Training
from workloads.common.checkpoint import UnusableWeights, read_checkpoint, write_checkpoint
from workloads.common.ending import ends_with_reason
from workloads.common.part import part_done
from workloads.common.record import Record
from workloads.common.rounds import Round
from workloads.common.upkeep import Upkeep

__all__ = ["main"]

_WEIGHTS: Final = "weights.npz"
_LOOK_UP_EVERY_S: Final = 0.5
_PATIENCE_S: Final = 5.0
"""How long a round may take before it is told whom it waits for."""


class Averaging:
    """The rounds of a run, how far it is, and when it is done. Saves itself in `run_dir` and goes on from there."""

    def __init__(self, settings: Settings, run_dir: Path) -> None:
        """Raises UnusableWeights if there are weights to go on from that cannot be used."""
        self.training = Training(settings)
        self.counts = Counts()
        self.stop_asked = False
        self._most = settings.rounds
        self._path = run_dir / _WEIGHTS
        if self._path.exists():
            self._go_on()
        self._round = self._next_round()
        self._began = time.monotonic()
        self._started = self._began - self.counts.seconds
        self.record = Record(run_dir / "curve.csv", COLUMNS, self.counts.rounds, time.monotonic, "averaging")
        self.upkeep = Upkeep(self._report, self._save, time.monotonic)

    def published(self) -> dict[str, NDArray[Any]]:
        """Return what actors need for the present round: its number, and the weights [size] that it begins from."""
        return {"round": np.array(self._round.number), "weights": self.training.weights.get_flat()}

    def take(self, batch: Batch) -> bool:
        """Take a contribution; return whether the next round begins by it. Raises ValueError as Round.add does."""
        self._round.add(batch)
        if not self._round.whole:
            return False
        done, counts = self._round, self.counts
        self.training.take(done.average())
        counts.rounds = done.number
        counts.samples += done.samples
        self._began = time.monotonic()
        counts.seconds = self._began - self._started
        for rank, part in enumerate(done.parts):
            self.record.count(f"actor.{rank}", part.samples)
        self.record.score = score = self.training.score
        self.record.add((counts.seconds, counts.rounds, counts.samples, done.loss, score))
        self._round = self._next_round()
        return True

    def ask_to_stop(self) -> None:
        """End soon. Safe in a signal handler."""
        self.stop_asked = True

    @property
    def done(self) -> bool:
        """Whether somebody asked for the end or the last round is over."""
        return self.stop_asked or self._part_done == 1

    @property
    def _part_done(self) -> float | None:
        return part_done((self._most, self.counts.rounds))

    def finish(self) -> None:
        """Save and report for the last time. Raises OSError if something cannot be written."""
        self._save()
        self.record.report(self.counts.rounds, self._part_done)
        done = f"{self.counts.rounds:,} rounds, {self.counts.samples:,} samples"
        self.record.tell(f"{done}, score {self.training.score:.4f}", self.counts.rounds)
        self.record.close()

    def _report(self) -> None:
        self.record.report(self.counts.rounds, self._part_done, self._waits_for(time.monotonic()))
        self.record.write()

    def _save(self) -> None:
        self.record.write()  # no line of curve.csv may be missing of what the weights have behind them
        write_checkpoint(self._path, self.training.weights.get(), self.counts)

    def _go_on(self) -> None:
        arrays, self.counts = read_checkpoint(self._path, Counts)
        try:
            self.training.weights.set(arrays)
        except ValueError as error:
            raise UnusableWeights(f"{self._path}: {error}") from None
        print(f"going on from {self._path} after {self.counts.rounds:,} rounds", flush=True)

    def _next_round(self) -> Round:
        return Round(self.counts.rounds + 1, self.training.weights.size)

    def _waits_for(self, now: float) -> str | None:
        return self._round.waits_for if now - self._began >= _PATIENCE_S else None


@ends_with_reason(OSError)
def main() -> None:
    """Average until the last round is over or SIGTERM comes; leave weights and curve."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    limit_memory()
    averaging = Averaging(settings, me.run_dir)
    signal.signal(signal.SIGTERM, lambda *_: averaging.ask_to_stop())
    with ends_with_reason(ValueError), Learner(limits=Limits(in_flight=1)) as channel:
        run(averaging, channel)
    averaging.finish()


def run(averaging: Averaging, channel: Learner) -> None:
    """Hold one round after the other until it is done. Raises ValueError for a batch that is no contribution."""
    if not averaging.done:
        channel.publish(averaging.published())
    while not averaging.done:
        batch = channel.get(_LOOK_UP_EVERY_S)
        if batch is not None and averaging.take(batch) and not averaging.done:
            channel.publish(averaging.published())
        averaging.upkeep.keep()


if __name__ == "__main__":
    main()
