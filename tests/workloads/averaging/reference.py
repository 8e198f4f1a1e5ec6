"""The same steps in one process: networks of dense layers in NumPy, in float64, with gradients written out by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.averaging import tasks
from workloads.averaging.settings import Settings
from workloads.averaging.share import Share
from workloads.common.weights import Weights

Floats = NDArray[Any]


def weights_after(settings: Settings, actors: int) -> Floats:
    """The vector that a run of `settings.rounds` rounds ends with."""
    weights = Weights(tasks.build(settings.task, settings.seed))
    start = [array.astype(np.float64) for array in weights.get().values()]
    reference = Reference(settings)
    shares = [Share(len(reference.inputs), k, actors, settings.batch, settings.seed) for k in range(actors)]
    round_of = reference.round_of_gradients if settings.scheme == "gradients" else reference.round_of_weights
    for number in range(settings.rounds):
        start = round_of(start, shares, number)
    return np.concatenate([array.ravel() for array in start])


class Reference:
    def __init__(self, settings: Settings) -> None:
        data = tasks.load(settings.task, settings.seed)
        self.inputs, self.targets = data.inputs.astype(np.float64), data.targets
        self.settings = settings

    def round_of_gradients(self, weights: list[Floats], shares: Sequence[Share], number: int) -> list[Floats]:
        """One step on the batches of all actors, as if they were one batch."""
        return self.step(weights, np.concatenate([share.at(number) for share in shares]))

    def round_of_weights(self, weights: list[Floats], shares: Sequence[Share], number: int) -> list[Floats]:
        """One actor after the other from the same weights, and then their mean."""
        sums, samples = [np.zeros_like(array) for array in weights], 0
        for share in shares:
            ends, seen = weights, 0
            for step in range(self.settings.local_steps):
                which = share.at(number * self.settings.local_steps + step)
                ends, seen = self.step(ends, which), seen + len(which)
            sums, samples = [total + seen * end for total, end in zip(sums, ends, strict=True)], samples + seen
        return [total / samples for total in sums]

    def step(self, weights: list[Floats], which: NDArray[np.int64]) -> list[Floats]:
        slopes = self._gradient(weights, self.inputs[which], self.targets[which])
        return [weight - self.settings.learning_rate * slope for weight, slope in zip(weights, slopes, strict=True)]

    def _gradient(self, weights: list[Floats], inputs: Floats, targets: Floats) -> list[Floats]:
        if self.settings.task == "line":
            slope, intercept = weights
            error = 2 * (inputs @ slope + intercept - targets[:, None]) / len(inputs)
            return [inputs.T @ error, error.sum(axis=0)]
        first, bias, second, second_bias = weights
        hidden = np.maximum(inputs @ first + bias, 0)
        logits = hidden @ second + second_bias
        error = np.exp(logits - logits.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(targets)), targets] -= 1
        error /= len(inputs)
        below = (error @ second.T) * (hidden > 0)
        return [inputs.T @ below, below.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
