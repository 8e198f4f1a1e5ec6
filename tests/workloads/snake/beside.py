"""Plays a vectorised form of Snake beside the plain environment, step by step, with players that get everywhere."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from workloads.snake.environment import SnakeEnvironment
from workloads.snake.rules import CELLS, FRUIT, MOVES, SIDE, Actions, Frames

Cell = tuple[int, int]
Player = Callable[[SnakeEnvironment, np.random.Generator], int]


class Games(Protocol):
    """What all vectorised forms have; `step` gives frames, rewards, which ended, and the scores of those."""

    frames: Frames

    def step(self, actions: Actions) -> tuple[Frames, Any, Any, Any]: ...


def fruit_of(frame: Frames) -> Cell:
    row, column = divmod(int(frame.argmax()), SIDE)
    assert frame[row, column] == FRUIT
    return row, column


def moved(cell: Cell, action: int) -> Cell:
    return cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]


def at_random(_: SnakeEnvironment, random: np.random.Generator) -> int:
    """Games end at once: on walls, and on the tail."""
    return int(random.integers(len(MOVES)))


def to_the_fruit(game: SnakeEnvironment, random: np.random.Generator) -> int:
    """Mostly towards the fruit and not into what is in the way, so that snakes grow long."""
    body = set(game.body[:-1])
    places = [(action, moved(game.body[0], action)) for action in random.permutation(len(MOVES)).tolist()]
    safe = [
        (abs(at[0] - game.fruit[0]) + abs(at[1] - game.fruit[1]), place, action)
        for place, (action, at) in enumerate(places)
        if 0 <= at[0] < SIDE and 0 <= at[1] < SIDE and at not in body
    ]
    return min(safe)[2] if safe and random.random() < 0.995 else at_random(game, random)


def after_the_tail(game: SnakeEnvironment, random: np.random.Generator) -> int:
    """On the last cell of the tail wherever that is near, which goes on until the snake starves."""
    near = [action for action in range(len(MOVES)) if moved(game.body[0], action) == game.body[-1]]
    return near[0] if near else to_the_fruit(game, random)


def over_the_whole_board(game: SnakeEnvironment, _: np.random.Generator) -> int:
    """Round and round through each cell, up in rows and down in the first column: each game fills the board."""
    up, right, down, left = range(4)
    row, column = game.body[0]
    if column == 0:
        return down if row < SIDE - 1 else right
    if row % 2:
        return right if column < SIDE - 1 else up
    return left if column > 1 or row == 0 else up


def compare(vector: Games, players: list[Player], steps: int, seed: int) -> Counter[str]:
    """Play one game for each of `players` both ways, and return how often what happened."""
    random = np.random.default_rng(seed)
    singles = [SnakeEnvironment() for _ in players]
    for single, frame in zip(singles, vector.frames, strict=True):
        single.reset(seed=0)
        single.fruit = fruit_of(frame)
    seen: Counter[str] = Counter()
    for _ in range(steps):
        actions = [player(single, random) for player, single in zip(players, singles, strict=True)]
        frames, rewards, ended, scores = vector.step(np.array(actions, np.uint8))
        finished = []
        for index, single in enumerate(singles):
            follows = moved(single.body[0], actions[index]) == single.body[-1]
            _, reward, terminated, truncated, info = single.step(actions[index])
            assert (reward, terminated or truncated) == (rewards[index], ended[index])
            full = len(single.body) == CELLS
            seen.update(fruit=int(reward), starved=truncated, full=full, dead=terminated and not full)
            seen.update(long=len(single.body) > CELLS // 2, follows=follows and not terminated)
            if ended[index]:
                finished.append(info["score"])
                single.reset()
            single.fruit = fruit_of(frames[index])
            np.testing.assert_array_equal(single.frame(), frames[index])
        assert scores.tolist() == finished
    return seen
