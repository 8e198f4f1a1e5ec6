"""The options of the averaging workload: `gpusched launch averaging` makes a command-line option of each field."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["Scheme", "Settings", "Task"]

Scheme = Literal["weights", "gradients"]
Task = Literal["line", "digits"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of the workload can be told."""

    scheme: Annotated[
        Scheme,
        Meta(
            description="what an actor sends each round, and the learner averages; weights: those it has after "
            "--local-steps steps of its own; gradients: the gradient on its next batch"
        ),
    ] = "weights"
    task: Annotated[
        Task, Meta(description="line: find y = 0.1 x + 0.3; digits: scikit-learn's handwritten ones, 8 x 8 pixels")
    ] = "line"
    rounds: Annotated[int, Meta(description="stop after so many rounds; 0: go on", ge=0)] = 200
    local_steps: Annotated[
        int, Meta(description="steps of an actor in one round, with --scheme weights", ge=1, le=10_000)
    ] = 5
    batch: Annotated[int, Meta(description="samples that an actor takes for one gradient", ge=1, le=65536)] = 32
    learning_rate: Annotated[float, Meta(description="step size of gradient descent", gt=0, le=10)] = 0.5
    seed: Annotated[int, Meta(description="what the run's random numbers start from", ge=0, lt=2**32)] = 0
