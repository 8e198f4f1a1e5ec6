"""What a careful person would write instead of many processes: one, that plays 400 games at once and learns from them.

The same network, labels and update as the original's, compiled; no transport at all. `python -m
bench.peers.vectorised SECONDS`
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.peers.curve import Point, figures
from bench.peers.original_agent import LEARNING_RATE, MINIBATCH, sampled
from bench.peers.original_game import BODY, FRUIT, HEAD
from bench.peers.ready import network
from bench.processes import tree_pss_mb
from workloads.snake import rules
from workloads.snake.vector import VectorSnake

__all__: list[str] = []

_GAMES: Final = 400
_MOST_STEPS: Final = 40_000

Floats = NDArray[np.float32]
Played = tuple[Floats, NDArray[np.int32], Floats, float]
"""States [n, 10, 10, 1], actions [n], values [n] of whole games, and their mean score."""


def _states() -> Floats:
    """[what a cell of a frame holds] -> what the original's network is shown."""
    table = np.full(256, BODY, np.float32)
    table[0], table[rules.HEAD], table[rules.FRUIT] = 0, HEAD, FRUIT
    return table


_STATES: Final = _states()


def play(judge: Callable[[Floats], Floats], random: np.random.Generator) -> Played:
    """Play each game once to its end, or until there are 40,000 steps; only games that go on are judged."""
    games = VectorSnake(_GAMES, int(random.integers(2**31)))
    alive, score = np.ones(_GAMES, bool), np.zeros(_GAMES)
    states, actions, rewards, whose, taken = [], [], [], [], 0
    while alive.any() and taken < _MOST_STEPS:
        going = alive.nonzero()[0]
        seen = _STATES[games.frames[going]][..., None]
        chosen = sampled(judge(seen), random.random(going.size))
        everybody = np.zeros(_GAMES, np.uint8)
        everybody[going] = chosen
        _, reward, ended, _ = games.step(everybody)
        score[going] += reward[going]
        states.append(seen)
        actions.append(chosen.astype(np.int32))
        rewards.append(reward[going])
        whose.append(going)
        taken += going.size
        alive &= ~ended
    return np.concatenate(states), np.concatenate(actions), _values(rewards, whose), float(score.mean())


def _values(rewards: list[Floats], whose: list[NDArray[np.intp]]) -> Floats:
    """Return 1 for each step that a fruit follows in its game, else 0."""
    follows = np.zeros(_GAMES, np.float32)
    values: list[Floats] = []
    for reward, games in zip(reversed(rewards), reversed(whose), strict=True):
        follows[games] = np.maximum(follows[games], reward)
        values.append(follows[games])
    return np.concatenate(values[::-1])


class Agent:
    """The network, compiled to judge any number of states and to learn from a minibatch."""

    def __init__(self) -> None:
        import tensorflow as tf

        model, optimizer = network(), tf.keras.optimizers.Adam(LEARNING_RATE)
        states = tf.TensorSpec((None, 10, 10, 1), tf.float32)
        signature = [states, tf.TensorSpec((None,), tf.int32), tf.TensorSpec((None,), tf.float32)]

        @tf.function(input_signature=signature)  # type: ignore[untyped-decorator]
        def step(states: Any, actions: Any, values: Any) -> None:
            with tf.GradientTape() as tape:
                chosen = tf.gather(model(states), actions, batch_dims=1)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(values, chosen))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        self._step = step
        self._forward = tf.function(lambda states: model(states, training=False), input_signature=[states])

    def judge(self, states: Floats) -> Floats:
        """Return how likely a fruit follows, as logits [n, 4]."""
        return np.asarray(self._forward(states))

    def train(self, played: Played, random: np.random.Generator) -> None:
        """Learn from all steps once, in minibatches."""
        states, actions, values, _ = played
        for part in np.array_split(random.permutation(len(states)), max(1, len(states) // MINIBATCH)):
            self._step(states[part], actions[part], values[part])


def main(seconds: float) -> None:
    """Run it and print its figures."""
    began = time.monotonic()
    agent, random = Agent(), np.random.default_rng(0)
    curve: list[Point] = []
    steps = 0
    while time.monotonic() - began < seconds:
        played = play(agent.judge, random)
        steps += len(played[1])
        curve.append(Point(time.monotonic() - began, steps, played[3]))
        agent.train(played, random)
    print(json.dumps(figures(curve, seconds) | {"pss": tree_pss_mb(os.getpid())}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
