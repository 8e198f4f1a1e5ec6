"""Play and learn on the backend of KERAS_BACKEND: the action that pays must become more probable. Prints how much."""

import json
import sys
from typing import Any

import keras
import numpy as np

from workloads.common.weights import Weights
from workloads.snake.a2c import ActorCritic
from workloads.snake.networks import build, judge
from workloads.snake.rollout import Rollout
from workloads.snake.settings import Settings

STEPS, GAMES, PAYS = 16, 64, 2


def as_on_a_gpu() -> None:
    """Have PyTorch refuse to take its tensors for NumPy's arrays, as it does when they are on a GPU."""
    import torch

    usual: Any = torch.Tensor.__array__

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "convert_to_numpy":  # Keras's own way
                return usual(self, *args, **kwargs)
            frame = frame.f_back  # type: ignore[assignment]
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    torch.Tensor.__array__ = refuse


if keras.backend.backend() == "torch":
    as_on_a_gpu()
network, seen = sys.argv[1:]
keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
model = build(network, seen)  # type: ignore[arg-type]
Weights(model).set(Weights(model).get())
frames, hunger = random.integers(0, 4, (GAMES, 10, 10)).astype(np.uint8), np.zeros(GAMES, np.uint8)


def probability() -> float:
    logits = judge(model, frames, hunger).logits
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return float((powers[:, PAYS] / powers.sum(axis=1)).mean())


before = probability()
learner = ActorCritic(model, Settings(network=network, learning_rate=1e-3), random)  # type: ignore[arg-type]
for _ in range(5):
    actions = random.integers(0, 4, (STEPS, GAMES)).astype(np.uint8)
    judged = judge(model, frames, hunger)
    rollout = Rollout(
        actions=actions,
        rewards=(actions == PAYS).astype(np.float32),
        ended=np.ones((STEPS, GAMES), np.bool_),
        scores=np.zeros(0, np.int64),
        observations=np.repeat(judged.observations[None], STEPS, axis=0),
        log_probabilities=np.full((STEPS, GAMES), np.log(0.25), np.float32),
        values=np.zeros((STEPS + 1, GAMES), np.float32),
    )
    learner.learn(rollout, 0.0)
print(json.dumps({"backend": keras.backend.backend(), "before": before, "after": probability()}))
