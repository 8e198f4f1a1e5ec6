"""A replica of the workload snake with one thing changed: `python -m bench.ablation.changed learner|actor [CHANGE]`."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from keras import layers
from msgspec.structs import replace

from workloads.snake import a2c, actor, inputs, learner, networks
from workloads.snake.a2c import ActorCritic
from workloads.snake.rollout import Rollout
from workloads.snake.rules import PATIENCE

__all__ = ["CHANGES"]

Learn = Callable[[ActorCritic, Rollout, float], bool]

_LEARN: Final[Learn] = ActorCritic.learn


def _twice(self: ActorCritic, rollout: Rollout, done: float) -> bool:
    _LEARN(self, rollout, done)
    return _LEARN(self, rollout, done)


def _constant(self: ActorCritic, rollout: Rollout, _done: float) -> bool:
    return _LEARN(self, rollout, 0.0)


def _dear_death(self: ActorCritic, rollout: Rollout, done: float) -> bool:
    """Learn that a game that ends without a fruit costs one."""
    died = rollout.ended & (rollout.rewards == 0)
    return _LEARN(self, replace(rollout, rewards=rollout.rewards - died.astype(np.float32)), done)


def _hunger_is_no_end(self: ActorCritic, rollout: Rollout, done: float) -> bool:
    """Learn that a board on which hunger ends the game is worth what it was a step before. Needs the inputs `paths`."""
    _, counts, moves = (rollout.observations[..., part] for part in inputs.AroundAndPaths.layout.parts)
    leads_to = np.take_along_axis(moves, rollout.actions[..., None], axis=2)[..., 0]
    hungry = rollout.ended & (rollout.rewards == 0) & (counts[..., 1] == PATIENCE - 1) & (leads_to > 0)
    discount = self._settings.discount
    worth = discount * rollout.values[:-1] / a2c.reward_scale(discount)
    return _LEARN(self, replace(rollout, rewards=rollout.rewards + hungry * worth), done)


def _wide(seen: Any) -> Any:
    x = layers.Dense(256, activation="relu", name="dense_1")(seen)
    return layers.Dense(256, activation="relu", name="dense_2")(x)


CHANGES: Final[Mapping[str, Callable[[], None]]] = {
    "tip": lambda: vars(inputs).update(_TIP=0),
    "trace": lambda: vars(a2c).update(advantages=partial(a2c.advantages, trace=0.9)),
    "symmetries": lambda: vars(a2c).update(SYMMETRIES=1),
    "scale": lambda: vars(a2c).update(reward_scale=lambda _discount: 1.0),
    "wide": lambda: vars(networks).update(_small=_wide),
    "twice": lambda: setattr(ActorCritic, "learn", _twice),
    "constant": lambda: setattr(ActorCritic, "learn", _constant),
    "death": lambda: setattr(ActorCritic, "learn", _dear_death),
    "hunger": lambda: setattr(ActorCritic, "learn", _hunger_is_no_end),
}
"""What can be changed, by its name."""


def main(role: str, *changes: str) -> None:
    """Change what is named, and run as the workload's own program does."""
    for change in changes:
        CHANGES[change]()
    (learner if role == "learner" else actor).main()


if __name__ == "__main__":
    main(*sys.argv[1:])
