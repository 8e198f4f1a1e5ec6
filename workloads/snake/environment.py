"""One game of Snake as a Gymnasium environment, written to be read. vector.py plays the same game, many at once."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from workloads.snake.drawing import as_image, as_text
from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, PATIENCE, SIDE, START, Frames

__all__ = ["SnakeEnvironment"]


class SnakeEnvironment(gymnasium.Env[Frames, np.int64]):  # type: ignore[misc]
    """Observations are frames (see rules.py), actions 0..3; `info["score"]` counts the fruits of this game.

    A game is truncated after 100 steps without a fruit and terminated by everything else. `body` is head first.
    `render_mode` is None, "ansi" (text) or "rgb_array"; ValueError for any other.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in {None, *self.metadata["render_modes"]}:
            raise ValueError(f"no render mode {render_mode!r}: use one of {self.metadata['render_modes']}")
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, FRUIT, (SIDE, SIDE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self.body: list[tuple[int, int]] = []
        self.fruit = (0, 0)
        self._hunger = 0
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frames, dict[str, Any]]:
        """Start a game; `seed` decides where its fruits will be."""
        super().reset(seed=seed, options=options)
        self.body = list(START)
        self._hunger = 0
        self._over = False
        self._place_fruit()
        return self.frame(), {"score": 0}

    def step(self, action: np.int64 | int) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Move the head by one cell. Raises ValueError for an action that is not 0..3, RuntimeError after the end."""
        if not 0 <= action < len(MOVES):
            raise ValueError(f"no action {action}: use 0 up, 1 right, 2 down, 3 left")
        if self._over:
            raise RuntimeError("the game is over: call reset() first")
        down, right = MOVES[action]
        head = (self.body[0][0] + down, self.body[0][1] + right)
        eats = head == self.fruit
        tail = self.body if eats else self.body[:-1]
        dies = head in tail or not (0 <= head[0] < SIDE and 0 <= head[1] < SIDE)
        if not dies:
            self.body = [head, *tail]
        full = len(self.body) == CELLS
        if eats and not full:
            self._place_fruit()
        self._hunger = 0 if eats else self._hunger + 1
        starved = self._hunger >= PATIENCE and not dies
        self._over = dies or full or starved
        return self.frame(), float(eats), dies or full, starved, {"score": len(self.body) - len(START)}

    def frame(self) -> Frames:
        """Return the board as it is now."""
        frame = np.zeros((SIDE, SIDE), np.uint8)
        for age, cell in enumerate(self.body):
            frame[cell] = len(self.body) - age
        frame[self.body[0]] = HEAD
        if len(self.body) < CELLS:
            frame[self.fruit] = FRUIT
        return frame

    def render(self) -> str | NDArray[np.uint8] | None:
        """Return the board as text or as an RGB image, by `render_mode`."""
        if self.render_mode == "ansi":
            return as_text(self.frame())
        return as_image(self.frame()) if self.render_mode == "rgb_array" else None

    def _place_fruit(self) -> None:
        free = [(row, column) for row in range(SIDE) for column in range(SIDE) if (row, column) not in self.body]
        self.fruit = free[int(self.np_random.integers(len(free)))]
