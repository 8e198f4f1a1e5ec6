"""The learner thinks for all actors: it answers what they ask, in one forward, and keeps what they played.

It knows how players ask (player.py), and neither how a network judges nor how one learns.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gpusched.channel import Batch, Learner
from workloads.snake.algorithm import Played
from workloads.snake.player import HALVES
from workloads.snake.rollout import Floats, Rollout, empty_rollout, sample
from workloads.snake.rules import SIDE, Frames, Hunger
from workloads.snake.symmetry import Observations

__all__ = ["Central", "Judge", "Judgement", "Trajectory"]

Judge = Callable[[Frames, Hunger], tuple[Floats, Floats, Observations]]
"""Frames [n, 10, 10] and hunger [n] -> logits [n, 4], values [n], and the observations [n, k] that they come of."""


class Judgement(NamedTuple):
    """Of the games of one ask [games]: what they observe, the actions drawn, their log-probabilities, the values."""

    observations: Observations
    actions: NDArray[np.uint8]
    logs: Floats
    values: Floats


_PATIENCE_S: Final = 0.001
_MOST_FRAMES: Final = 4096
_TYPES: Final[dict[str, type[np.generic]]] = {
    "frames": np.uint8,
    "hunger": np.uint8,
    "rewards": np.float32,
    "ended": np.bool_,
    "scores": np.int64,
}


class Ask(NamedTuple):
    """What one half of an actor's games asks, and what the step before gave: [games] each.

    `frames` are [games, 10, 10]; `scores`: of the games that ended with that step. `step` counts the steps that were
    made; in the first, nothing was given.
    """

    half: int
    step: int
    frames: Frames
    hunger: Hunger
    rewards: Floats
    ended: NDArray[np.bool_]
    scores: NDArray[np.int64]


class Trajectory:
    """The steps of one half that are not a whole rollout yet. `steps` of each of `games` are one.

    `size`: how many bytes an observation has.
    """

    def __init__(self, steps: int, games: int, size: int) -> None:
        self._steps, self._games, self._size = steps, games, size
        self._last = -1
        self._begin()

    def goes_on_with(self, ask: Ask) -> bool:
        """Return whether `ask` is the next of these games, or the last one again, whose answer was lost.

        It is neither when another process plays under that name now, which counts from 0.
        """
        return len(ask.frames) == self._games and ask.step in {self._last, self._last + 1}

    def take(self, ask: Ask, judged: Judgement) -> Rollout | None:
        """Add what was asked and how it was judged; return the rollout that the step before it has completed."""
        whole = None
        if ask.step == self._last + 1 and self._last >= 0:
            self._rollout.rewards[self._at], self._rollout.ended[self._at] = ask.rewards, ask.ended
            self._scores.append(ask.scores.copy())  # the ask's own memory goes back to its actor
            self._at += 1
            if self._at == self._steps:
                whole = self._whole(judged.values)
                self._begin()
        self._last = ask.step
        self._rollout.observations[self._at], self._rollout.values[self._at] = judged.observations, judged.values
        self._rollout.actions[self._at], self._rollout.log_probabilities[self._at] = judged.actions, judged.logs
        return whole

    def _begin(self) -> None:
        self._at = 0
        self._scores: list[NDArray[np.int64]] = []
        self._rollout = empty_rollout(self._steps, self._games, self._size)

    def _whole(self, values: Floats) -> Rollout:
        self._rollout.values[self._steps] = values
        return replace(self._rollout, scores=np.concatenate(self._scores))


class Central:
    """Answers asks with actions drawn from what `judge` says, and gives rollouts of `steps` steps of each game.

    Who asks is answered before each rollout that is learnt from, but not while more than `steps` of them wait: what
    waits grows old, and many actors would play faster than is learnt, without end. So many answers, one for each that
    is learnt from, make the next ones whole when these are used up. What is no ask is said, left out, and answered with
    nothing, so that nobody waits for it.
    """

    def __init__(self, channel: Learner, judge: Judge, steps: int, random: np.random.Generator) -> None:
        self._channel, self._judge, self._random = channel, judge, random
        self._steps = steps
        self._trajectories: dict[tuple[str, int], Trajectory] = {}
        self._whole: deque[Played] = deque()

    def next(self, timeout: float) -> Played | None:
        """Answer what has been asked; return the oldest whole rollout, and wait for it up to `timeout` seconds."""
        if len(self._whole) <= self._steps:
            self._serve(0.0 if self._whole else timeout)
        return self._whole.popleft() if self._whole else None

    def learnt(self) -> None:
        """Nobody else holds weights: the next answer comes of the new ones."""

    def _serve(self, timeout: float) -> None:
        asked = self._collect(timeout)
        if not asked:
            return
        seen = ([ask.frames for _, ask in asked], [ask.hunger for _, ask in asked])
        logits, values, observations = self._judge(*map(np.concatenate, seen))
        drawn, logs = sample(logits, self._random)
        every = Judgement(observations, drawn.astype(np.uint8), logs, values)
        ends = np.cumsum([len(ask.frames) for _, ask in asked])[:-1]
        parts = [Judgement(*part) for part in zip(*(np.split(array, ends) for array in every), strict=True)]
        for (batch, _), judged in zip(asked, parts, strict=True):
            self._channel.answer(batch, {"actions": judged.actions})
        for (batch, ask), judged in zip(asked, parts, strict=True):
            self._keep(batch.actor, ask, judged)

    def _keep(self, actor: str, ask: Ask, judged: Judgement) -> None:
        trajectory = self._trajectories.get((actor, ask.half))
        if trajectory is None or not trajectory.goes_on_with(ask):
            trajectory = Trajectory(self._steps, *judged.observations.shape)
            self._trajectories[actor, ask.half] = trajectory
        whole = trajectory.take(ask, judged)
        if whole is not None:
            self._whole.append(Played(actor, whole))

    def _collect(self, timeout: float) -> list[tuple[Batch, Ask]]:
        """Return what has been asked: half of all halves if they come in time, so that a few fill one forward.

        The wait for them is short and has an end, so that nobody waits for one who is slow.
        """
        asked: list[tuple[Batch, Ask]] = []
        frames, until = 0, 0.0
        while frames < _MOST_FRAMES:
            batch = self._channel.get(timeout)
            if batch is None:
                break
            ask = self._understand(batch)
            if ask is not None:
                asked.append((batch, ask))
                frames += len(ask.frames)
            until = until or time.monotonic() + _PATIENCE_S
            enough = HALVES * len(asked) >= len(self._trajectories)
            timeout = 0.0 if enough else max(0.0, until - time.monotonic())
        return asked

    def _understand(self, batch: Batch) -> Ask | None:
        try:
            if not batch.asks:
                raise ValueError("it waits for no answer")  # noqa: TRY301 (said as all that is wrong with one)
            return ask_from(batch.arrays, batch.meta)
        except ValueError as error:
            print(f"an ask of {batch.actor} is left out: {error}", file=sys.stderr, flush=True)
            if batch.asks:
                self._channel.answer(batch, {})
            return None


def ask_from(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, object]) -> Ask:
    """Return the ask that travelled so. Raises ValueError if it is none."""
    half, step = meta.get("half"), meta.get("step")
    if not isinstance(half, int) or not 0 <= half < HALVES or not isinstance(step, int) or step < 0:
        raise ValueError(f"it numbers its half {half!r} and its step {step!r}")
    if set(arrays) != set(_TYPES):
        raise ValueError(f"an ask has {sorted(_TYPES)}, not {sorted(arrays)}")
    games = len(arrays["frames"]) if arrays["frames"].ndim else 0
    shapes = dict.fromkeys(_TYPES, (games,)) | {"frames": (games, SIDE, SIDE), "scores": (arrays["scores"].size,)}
    for name, array in arrays.items():
        if array.dtype != _TYPES[name] or array.shape != shapes[name] or not games:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {np.dtype(_TYPES[name])} {shapes[name]}")
    return Ask(half, step, **arrays)
