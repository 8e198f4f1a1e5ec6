"""The learner, which is the whole job: trains on all of its devices in step. `gpusched launch mnist_towers` starts it.

Owns what is in the run's directory: weights.npz, curve.csv and tensorboard/.
"""

import time
from pathlib import Path

from gpusched import runtime
from gpusched.frameworks import limit_memory
from workloads.common import digits, mnist
from workloads.common.checkpoint import read_checkpoint, unusable_if_wrong, write_checkpoint
from workloads.common.digits import Digits
from workloads.common.ending import ends_with_reason
from workloads.common.record import Record
from workloads.common.run import Run
from workloads.mnist_towers.batches import Batches
from workloads.mnist_towers.devices import Devices, open_devices
from workloads.mnist_towers.mirrored import Mirrored
from workloads.mnist_towers.record import COLUMNS, Counts
from workloads.mnist_towers.settings import Settings
from workloads.mnist_towers.towers import Towers

__all__ = ["Training", "main"]


class Training(Run[Counts]):
    """The steps of a run."""

    def __init__(self, settings: Settings, devices: Devices, run_dir: Path) -> None:
        """Raises UnusableWeights if there are weights to go on from that cannot be used, ValueError for the data."""
        super().__init__(run_dir, Counts())
        self._train, self._test = mnist.load(Path(settings.data)) if settings.data else digits.load()
        self._batches = Batches(len(self._train.labels), settings.batch, settings.seed)
        self._most = settings.passes
        of = Towers if settings.style == "towers" else Mirrored
        self.style: Towers | Mirrored = of(settings, devices, self._train.images.shape[1])
        self._go_on()
        self._record = Record(run_dir / "curve.csv", COLUMNS, self.counts.steps, time.monotonic, "towers")

    def step(self) -> None:
        """Take the next step; after the last one of a pass, test."""
        counts = self.counts
        which = self._batches.at(counts.steps)
        counts.losses += self.style.step(Digits(self._train.images[which], self._train.labels[which]))
        counts.steps += 1
        self.count_seconds()
        self._record.count("learner.0", 1)
        if counts.steps % self._batches.steps == 0:
            counts.passes += 1
            self._record.score = score = self.style.score(self._test)
            self._record.count("learner.0", 0, [score])
            self._record.add((counts.seconds, counts.steps, counts.passes, counts.losses / self._batches.steps, score))
            counts.losses = 0.0

    def finish(self) -> None:
        """Save and report for the last time. Raises OSError if something cannot be written."""
        self._save()
        counts, score = self.counts, self.style.score(self._test)
        self._record.report(counts.steps, self.part_done)
        self._record.tell(f"{counts.passes:,} passes, {counts.steps:,} steps, score {score:.4f}", counts.steps)
        self._record.close()

    @property
    def _limits(self) -> tuple[tuple[float, float], ...]:
        return ((self._most * self._batches.steps, self.counts.steps),)

    @property
    def _behind(self) -> str:
        return f"{self.counts.steps:,} steps"

    def _report(self) -> None:
        self._record.report(self.counts.steps, self.part_done)
        self._record.write()

    def _save(self) -> None:
        self._record.write()  # no line of curve.csv may be missing of what the weights have behind them
        write_checkpoint(self._path, self.style.weights.get(), self.counts)

    def _load(self, path: Path) -> Counts:
        arrays, counts = read_checkpoint(path, Counts)
        with unusable_if_wrong(path):
            self.style.restore(arrays)
        return counts


@ends_with_reason(OSError)
def main() -> None:
    """Train until the last pass is over or SIGTERM comes; leave weights and curve."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    limit_memory()
    with ends_with_reason(ValueError):
        devices = open_devices(settings)
        training = Training(settings, devices, me.run_dir)
        tell_where(training.style.where(), devices)
    training.end_at_sigterm()
    runtime.report_ready()
    while not training.done:
        training.step()
        training.keep()
    training.finish()


def tell_where(where: dict[str, tuple[str, ...]], devices: Devices) -> None:
    """Print on which devices everything is. Raises ValueError if a tower computes elsewhere than it should.

    With soft placement TensorFlow would put a whole tower on the CPU and say nothing. Where no gradient of a tower can
    be seen, as with MirroredStrategy, it is the copies of the variables that have to be on the towers.
    """
    for name, found in where.items():
        print(f"{name}: {', '.join(device.rpartition('/device:')[2] for device in found)}", flush=True)
    for computed in [where["gradients"]] if "gradients" in where else where.values():
        if not all(found.endswith(tower) for found, tower in zip(computed, devices.towers, strict=True)):
            raise ValueError(f"the towers were to compute on {devices.towers}, and did on {computed}")


if __name__ == "__main__":
    main()
