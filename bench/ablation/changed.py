"""A replica of the workload snake with one thing changed: `python -m bench.ablation.changed learner|actor CHANGE`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from keras import layers, ops
from msgspec.structs import replace
from numpy.typing import NDArray

from workloads.snake import a2c, actor, inputs, learner, networks
from workloads.snake.a2c import ActorCritic
from workloads.snake.algorithm import reward_scale
from workloads.snake.rollout import Rollout
from workloads.snake.rules import CELLS, FRUIT, PATIENCE, SIDE, WALL
from workloads.snake.vector import VectorSnake

__all__ = ["CHANGES", "Change"]

Learn = Callable[[ActorCritic, Rollout, float], bool]

_LEARN: Final[Learn] = ActorCritic.learn
_SMALL: Final = networks._small  # noqa: SLF001 (what is changed is no part of what the workload offers)
_START: Final = VectorSnake._start  # noqa: SLF001
_AROUND: Final = SIDE + 1


def _twice(self: ActorCritic, rollout: Rollout, done: float) -> bool:
    _LEARN(self, rollout, done)
    return _LEARN(self, rollout, done)


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
    worth = discount * rollout.values[:-1] / reward_scale(discount)
    return _LEARN(self, replace(rollout, rewards=rollout.rewards + hungry * worth), done)


def _wide(seen: Any) -> Any:
    x = layers.Dense(256, activation="relu", name="dense_1")(seen)
    return layers.Dense(256, activation="relu", name="dense_2")(x)


def _convolution(seen: Any) -> Any:
    """The same two layers behind a convolution. Needs the inputs `frame`."""
    x = layers.Reshape((_AROUND, _AROUND, -1))(seen)
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="convolution")(x)
    return _SMALL(layers.Flatten()(x))


class _StillBlocked(inputs.SeenFromHead):
    """What SeenFromHead reads, and the cells that will still be the tail's when the head can be there."""

    def call(self, around: Any) -> Any:
        """Read `around`."""
        away = np.abs(np.arange(_AROUND) - _AROUND // 2)
        distance = ops.convert_to_tensor((away[:, None] + away).reshape(1, -1), "int32")
        ages = ops.cast(around, "int32")
        blocked = (ages > 0) & (around < WALL) & (ages >= distance)
        return ops.concatenate([super().call(around), ops.cast(blocked, self.compute_dtype)], axis=1)


def _start_where_another_is(self: VectorSnake, boards: NDArray[np.uint8], games: NDArray[np.intp]) -> None:
    """Let half of the games that ended go on from a board that another one is at."""
    _START(self, boards, games)
    others = np.setdiff1d(np.arange(len(self.frames)), games)
    if not others.size:
        return
    half = games[self._random.random(len(games)) < 0.5]  # noqa: PLR2004
    models, table = self._random.choice(others, half.size), boards.reshape(-1, CELLS)
    table[half] = np.where(table[models] == FRUIT, 0, table[models])
    self._head[half], self._length[half] = self._head[models], self._length[models]


class Change(NamedTuple):
    """`holder.name` becomes `value`, in the processes of these roles."""

    holder: Any
    name: str
    value: Any
    roles: Sequence[str] = ("learner", "actor")

    def make(self) -> None:
        """Change it. Raises AttributeError where it has another name by now."""
        getattr(self.holder, self.name)
        setattr(self.holder, self.name, self.value)


CHANGES: Final[Mapping[str, Change]] = {
    "tip": Change(inputs, "_TIP", 0),
    "trace": Change(a2c, "advantages", partial(a2c.advantages, trace=0.9)),
    "symmetries": Change(a2c, "SYMMETRIES", 1),
    "scale": Change(a2c, "reward_scale", lambda _discount: 1.0),
    "wide": Change(networks, "_small", _wide),
    "convolution": Change(networks, "_small", _convolution),
    "blocked": Change(networks, "SeenFromHead", _StillBlocked),
    "twice": Change(ActorCritic, "learn", _twice),
    "stay": Change(a2c, "fallen", lambda _done: 0.0),
    "fall": Change(a2c, "_STAYS", 0.0),
    "fifth": Change(a2c, "_STAYS", 0.8),
    "death": Change(ActorCritic, "learn", _dear_death),
    "hunger": Change(ActorCritic, "learn", _hunger_is_no_end),
    "curriculum": Change(VectorSnake, "_start", _start_where_another_is, ("actor",)),
}
"""What can be changed, by its name."""


def main(role: str, name: str) -> None:
    """Change what is named, and run as the workload's own program does."""
    change = CHANGES[name]
    if role in change.roles:
        change.make()
    (learner if role == "learner" else actor).main()


if __name__ == "__main__":
    main(*sys.argv[1:])
