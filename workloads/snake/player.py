"""An actor that asks the learner what to play: it steps games and imports no framework.

It plays two halves of its games in turns. While one half waits for its answer the other one steps, so that neither the
learner nor the actor waits for the other. central_inference.py is the other side.
"""

from typing import Any, Final, Never

import numpy as np
from numpy.typing import NDArray

from gpusched.channel import Actor, Answer, ChannelError
from workloads.snake.rules import MOVES
from workloads.snake.spectator import Spectator
from workloads.snake.vector import VectorSnake

__all__ = ["HALVES", "Half", "play_as_told"]

HALVES: Final = 2


class Half:
    """Some of an actor's games, and the question that is out for them."""

    def __init__(self, number: int, games: VectorSnake) -> None:
        size = len(games.frames)
        self.games = games
        self._told: dict[str, Any] = {
            "frames": games.frames,
            "hunger": games.hunger,
            "rewards": np.zeros(size, np.float32),
            "ended": np.zeros(size, np.bool_),
            "scores": np.empty(0, np.int64),
        }
        self._number = number
        self._steps = 0
        self._answer: Answer | None = None

    def ask(self, channel: Actor) -> None:
        """Ask what to play: the frames as they are, and what the step before gave. Raises LearnerGone.

        The steps are numbered, from 0 in each process: so the learner knows what belongs together, also when one was
        asked again or asks anew.
        """
        self._answer = channel.ask(self._told, meta={"half": self._number, "step": self._steps})

    def step(self, channel: Actor) -> NDArray[np.bool_]:
        """Wait for the answer and play it; return which games ended [games].

        A learner that was asked and is gone is asked again when it is back. Raises LearnerGone when the job is over,
        ChannelError if the learner did not understand.
        """
        while self._answer is None or (told := self._answer.wait()) is None:
            self.ask(channel)
        frames, rewards, ended, scores = self.games.step(_actions(told, len(self.games.frames)))
        self._told = {
            "frames": frames,
            "hunger": self.games.hunger,
            "rewards": rewards,
            "ended": ended,
            "scores": scores.astype(np.int64),
        }
        self._steps += 1
        return ended


def _actions(told: dict[str, NDArray[Any]], games: int) -> NDArray[np.uint8]:
    actions = told.get("actions")
    if actions is None or actions.dtype != np.uint8 or actions.shape != (games,) or actions.max() >= len(MOVES):
        raise ChannelError("the learner's answer holds no action for each game", "see its log")
    return actions


def play_as_told(channel: Actor, games: int, random: np.random.Generator, spectator: Spectator | None) -> Never:
    """Play `games` games as the learner says, for ever. Raises LearnerGone at the end."""
    sizes = [size for size in (games - games // HALVES, games // HALVES) if size]
    halves = [Half(number, VectorSnake(size, int(random.integers(2**32)))) for number, size in enumerate(sizes)]
    for half in halves:
        half.ask(channel)
    while True:
        for half in halves:
            frames = half.games.frames
            ended = half.step(channel)
            half.ask(channel)
            if spectator is not None and half is halves[0]:
                spectator.see(frames[:1], ended[:1])
