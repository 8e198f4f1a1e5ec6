"""The learner: averages what all actors contribute, round by round. `gpusched launch averaging` starts it.

Owns what is in the run's directory: weights.npz, curve.csv and tensorboard/.
"""

import time
from pathlib import Path

from gpusched import runtime
from gpusched.channel import Learner, Limits
from gpusched.frameworks import limit_memory
from workloads.averaging.record import COLUMNS, Counts
from workloads.averaging.settings import Settings
from workloads.averaging.training import Training
from workloads.common.checkpoint import read_checkpoint, unusable_if_wrong, write_checkpoint
from workloads.common.ending import ends_with_reason
from workloads.common.record import Record
from workloads.common.rounds import Round, hold_rounds
from workloads.common.run import Run
from workloads.common.weights import Weights

__all__ = ["Averaging", "main"]


class Averaging(Run[Counts]):
    """The rounds of a run. Raises UnusableWeights if there are weights to go on from that cannot be used."""

    def __init__(self, settings: Settings, run_dir: Path) -> None:
        super().__init__(run_dir, Counts())
        self.training = Training(settings)
        self._most = settings.rounds
        self._go_on()
        self.record = Record(run_dir / "curve.csv", COLUMNS, self.counts.rounds, time.monotonic, "averaging")

    @property
    def weights(self) -> Weights:
        """The weights that the next round begins from."""
        return self.training.weights

    @property
    def rounds(self) -> int:
        """How many rounds it has behind it."""
        return self.counts.rounds

    def take(self, done: Round) -> None:
        """Go on from the average of a round."""
        counts = self.counts
        self.training.take(done.average())
        counts.rounds = done.number
        counts.samples += done.samples
        self.count_seconds()
        for rank, part in enumerate(done.parts):
            self.record.count(f"actor.{rank}", part.samples)
        self.record.score = score = self.training.score
        self.record.add((counts.seconds, counts.rounds, counts.samples, done.loss, score))

    def finish(self) -> None:
        """Save and report for the last time. Raises OSError if something cannot be written."""
        self._save()
        self.record.report(self.counts.rounds, self.part_done)
        done = f"{self.counts.rounds:,} rounds, {self.counts.samples:,} samples"
        self.record.tell(f"{done}, score {self.training.score:.4f}", self.counts.rounds)
        self.record.close()

    @property
    def _limits(self) -> tuple[tuple[float, float], ...]:
        return ((self._most, self.counts.rounds),)

    @property
    def _behind(self) -> str:
        return f"{self.counts.rounds:,} rounds"

    def _report(self) -> None:
        self.record.report(self.counts.rounds, self.part_done, self._note)
        self.record.write()

    def _save(self) -> None:
        self.record.write()  # no line of curve.csv may be missing of what the weights have behind them
        write_checkpoint(self._path, self.weights.get(), self.counts)

    def _load(self, path: Path) -> Counts:
        arrays, counts = read_checkpoint(path, Counts)
        with unusable_if_wrong(path):
            self.weights.set(arrays)
        return counts


@ends_with_reason(OSError)
def main() -> None:
    """Average until the last round is over or SIGTERM comes; leave weights and curve."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    limit_memory()
    averaging = Averaging(settings, me.run_dir)
    averaging.end_at_sigterm()
    with ends_with_reason(ValueError), Learner(limits=Limits(in_flight=1)) as channel:
        hold_rounds(averaging, channel)
    averaging.finish()


if __name__ == "__main__":
    main()
