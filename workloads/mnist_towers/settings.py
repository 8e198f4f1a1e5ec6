"""The options of mnist_towers: `gpusched launch mnist_towers` makes a command-line option of each field."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from workloads.mnist_towers.split import sizes

__all__ = ["Settings", "Style", "Variables"]

Style = Literal["towers", "mirrored"]
Variables = Literal["cpu", "round-robin", "least-loaded", "mirrored"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of the workload can be told."""

    style: Annotated[
        Style,
        Meta(description="towers: every device and every sum is written out; mirrored: TensorFlow's MirroredStrategy"),
    ] = "towers"
    variables: Annotated[
        Variables,
        Meta(
            description="with --style towers, where variables are; cpu: on the host; round-robin: on one device after "
            "the other; least-loaded: on the device with the fewest bytes; mirrored: a copy on each"
        ),
    ] = "cpu"
    towers: Annotated[
        int,
        Meta(
            description="on how many devices; 0: on all GPUs of the process, or two parts of the CPU. The job has all "
            "idle GPUs to itself, also those without a tower: --gpus before it says which it gets",
            ge=0,
            le=64,
        ),
    ] = 0
    split: Annotated[
        str, Meta(description="how a batch is divided among the towers, as in 3,1; none: equally", max_length=1000)
    ] = ""
    soft_placement: Annotated[
        bool, Meta(description="let TensorFlow put an operation elsewhere that its device has not")
    ] = True
    log_placement: Annotated[bool, Meta(description="let TensorFlow log where each operation is")] = False
    data: Annotated[
        str,
        Meta(
            description="the real MNIST: Keras' mnist.npz, or a folder with its four idx files (.gz); "
            "none: scikit-learn's digits, 8 x 8 pixels"
        ),
    ] = ""
    passes: Annotated[int, Meta(description="stop after so many passes over the data; 0: go on", ge=0)] = 30
    batch: Annotated[int, Meta(description="samples of all towers together in one step", ge=1, le=65536)] = 64
    learning_rate: Annotated[float, Meta(description="step size of gradient descent", gt=0, le=10)] = 0.3
    seed: Annotated[int, Meta(description="what the run's random numbers start from", ge=0, lt=2**32)] = 0

    @property
    def parts(self) -> tuple[int, ...]:
        """How many parts of a batch each tower gets, in relation; empty: the split does not say. Raises ValueError."""
        if not self.split:
            return (1,) * self.towers
        try:
            parts = tuple(int(part) for part in self.split.split(","))
        except ValueError:
            raise ValueError(f"--split: {self.split!r} is no list of whole numbers such as 3,1") from None
        if min(parts) < 1:
            raise ValueError(f"--split: {self.split!r} leaves a tower nothing; give each at least 1")
        return parts

    def check(self) -> None:
        """Raise ValueError for what types cannot say. How many devices there are is known in the learner only."""
        if self.split and self.towers and len(self.parts) != self.towers:
            raise ValueError(
                f"--split: {self.split!r} is for {len(self.parts)} towers, and --towers says {self.towers}"
            )
        if self.parts:
            sizes(self.batch, self.parts)
        if self.style == "mirrored" and self.variables not in {"cpu", "mirrored"}:
            raise ValueError(f"--variables: with --style mirrored there is a copy on each device, not {self.variables}")
        if self.data and not Path(self.data).exists():
            raise ValueError(f"--data: there is no {self.data}")
