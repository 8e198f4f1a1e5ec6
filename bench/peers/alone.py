"""Snake learnt by one process on one core, as well as one can: `python -m bench.peers.alone SECONDS GAMES`.

Games and observations are loops that Numba compiles; network and learning are JAX's. The network, its inputs (`paths`),
the algorithm and its numbers are those of `gpusched launch snake`; nothing travels, and nothing waits.
"""

import json
import os
import sys
import time
from collections import deque
from itertools import pairwise
from typing import Any, Final

import numpy as np

from bench.peers.alone_numba import LAYOUT, MOVE_OF, compiled, read
from bench.peers.snake_numba import NumbaSnake
from workloads.snake.rules import CELLS, MOVES

__all__ = [
    "CLIP",
    "DISCOUNT",
    "ENTROPY",
    "LAST_ENTROPY",
    "MINIBATCH",
    "RATE",
    "STAYS",
    "STEPS",
    "TRACE",
    "advantages",
    "fallen",
]

STEPS: Final = 32
MINIBATCH: Final = 1024
DISCOUNT: Final = 0.995
TRACE: Final = 0.95
CLIP: Final = 0.2
RATE: Final = 0.001
ENTROPY: Final = 0.01
LAST_ENTROPY: Final = 0.05
STAYS: Final = 0.5
_SCALE: Final = (1 - DISCOUNT) / 0.03
_UNITS: Final = (128, 128)
_MEAN_OVER: Final = 1000
_USUAL_RUN_S: Final = 3600.0


class _Network:
    """The network `small`, its optimizer, and what compiled functions make of both."""

    def __init__(self, seed: int) -> None:
        import jax
        import jax.numpy as jnp

        random = np.random.default_rng(seed)

        def dense(inputs: int, outputs: int) -> tuple[Any, Any]:
            most = np.sqrt(6 / (inputs + outputs))
            return jnp.asarray(random.uniform(-most, most, (inputs, outputs)), jnp.float32), jnp.zeros(outputs)

        sizes = (read(np.zeros((1, LAYOUT.size), np.uint8), np).shape[1], *_UNITS)
        hidden = [dense(*pair) for pair in pairwise(sizes)]
        weights = (hidden, dense(_UNITS[-1], len(MOVES)), dense(_UNITS[-1], 1))
        first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
        self._state = weights, first, second, jnp.zeros(())

        def judge(weights: Any, seen: Any) -> tuple[Any, Any]:
            hidden, policy, value = weights
            x = read(seen, jnp)
            for kernel, bias in hidden:
                x = jax.nn.relu(x @ kernel + bias)
            return x @ policy[0] + policy[1], (x @ value[0] + value[1])[:, 0]

        def loss(weights: Any, batch: Any, entropy: Any) -> Any:
            logits, values = judge(weights, batch["seen"])
            logs = jax.nn.log_softmax(logits)
            now = jnp.take_along_axis(logs, batch["moves"][:, None], axis=1)[:, 0]
            ratio = jnp.exp(now - batch["then"])
            gain = jnp.minimum(ratio * batch["advantage"], jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * batch["advantage"])
            random = entropy * (jnp.exp(logs) * logs).sum(axis=1)
            return (random - gain + 0.5 * (values - batch["worth"]) ** 2).mean()

        def step(state: Any, batch: Any, rate: Any, entropy: Any) -> Any:
            weights, first, second, count = state
            slope = jax.grad(loss)(weights, batch, entropy)
            norm = jnp.sqrt(sum((each**2).sum() for each in jax.tree.leaves(slope)))
            slope = jax.tree.map(lambda each: each * jnp.minimum(1.0, 0.5 / (norm + 1e-9)), slope)
            count += 1
            first = jax.tree.map(lambda mean, each: 0.9 * mean + 0.1 * each, first, slope)
            second = jax.tree.map(lambda mean, each: 0.999 * mean + 0.001 * each**2, second, slope)
            rate *= jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
            weights = jax.tree.map(
                lambda each, mean, square: each - rate * mean / (jnp.sqrt(square) + 1e-5), weights, first, second
            )
            return weights, first, second, count

        self._judge, self._step, self._ready = jax.jit(judge), jax.jit(step, donate_argnums=0), jax.block_until_ready

    def judge(self, seen: Any) -> tuple[Any, Any]:
        """Return logits [n, 4] and values [n] of observations [n, 127]."""
        logits, values = self._judge(self._state[0], seen)
        return np.asarray(logits), np.asarray(values)

    def learn(self, batch: dict[str, Any], rate: float, entropy: float) -> None:
        """Take one step on a minibatch; its arrays may be written to again."""
        self._state = self._step(self._state, batch, np.float32(rate), np.float32(entropy))
        self._ready(self._state[3])


class Alone:
    """Plays `games` games and learns from them, in turns."""

    def __init__(self, games: int, seed: int) -> None:
        self._observe, self._turn = compiled()
        self._random, self._network, self._snakes = np.random.default_rng(seed), _Network(seed), NumbaSnake(games)
        self._seen = np.empty((STEPS + 1, games, LAYOUT.size), np.uint8)
        self._images = np.empty((MINIBATCH, LAYOUT.size), np.uint8)
        self._look(0)
        self._judged = self._network.judge(self._seen[0])
        self.scores: deque[int] = deque(maxlen=_MEAN_OVER)

    def _look(self, step: int) -> None:
        self._observe(self._snakes.frames.reshape(-1, CELLS), self._snakes.hunger, self._seen[step])

    def go_on(self, done: float) -> int:
        """Play and learn from one rollout, when that part of the run is `done`; return how many steps those were."""
        games = len(self._snakes.frames)
        moves, then, rewards = (np.empty((STEPS, games), kind) for kind in (np.int64, np.float32, np.float32))
        ended, values = np.empty((STEPS, games), np.bool_), np.empty((STEPS + 1, games), np.float32)
        values[0] = self._judged[1]
        for step in range(STEPS):
            logits = self._judged[0]
            moves[step] = (logits + self._random.gumbel(size=logits.shape)).argmax(axis=1)
            highest = logits.max(axis=1)
            total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
            then[step] = logits[np.arange(games), moves[step]] - total
            _, rewards[step], ended[step], scores = self._snakes.step(moves[step])
            self.scores.extend(scores.tolist())
            self._look(step + 1)
            self._judged = self._network.judge(self._seen[step + 1])
            values[step + 1] = self._judged[1]
        self._learn(moves.ravel(), then.ravel(), advantages(rewards * np.float32(_SCALE), ended, values), values, done)
        self._seen[0] = self._seen[STEPS]
        return STEPS * games

    def _learn(self, moves: Any, then: Any, advantage: Any, values: Any, done: float) -> None:
        worth = (advantage + values[:-1]).ravel()
        advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-6)).ravel()
        fell = fallen(done)
        order, seen = self._random.permutation(len(moves)), self._seen[:STEPS].reshape(-1, LAYOUT.size)
        for at in range(0, len(order) - MINIBATCH + 1, MINIBATCH):
            mine = order[at : at + MINIBATCH]
            symmetries = self._random.integers(len(MOVE_OF), size=MINIBATCH)
            self._turn(seen, mine, symmetries, self._images)
            batch = {"seen": self._images, "moves": MOVE_OF[symmetries, moves[mine]].astype(np.int32)}
            batch |= {"then": then[mine], "advantage": advantage[mine], "worth": worth[mine]}
            self._network.learn(batch, RATE * (1 - fell), ENTROPY * (1 - (1 - LAST_ENTROPY) * fell))


def fallen(done: float) -> float:
    """How far rate and entropy have fallen, as in workloads/snake/a2c.py."""
    return max(0.0, done - STAYS) / (1 - STAYS)


def advantages(rewards: Any, ended: Any, values: Any) -> Any:
    """Generalised advantage estimation, as in workloads/snake/a2c.py."""
    goes_on = DISCOUNT * ~ended
    surprise = rewards + goes_on * values[1:] - values[:-1]
    result, after = np.empty_like(surprise), np.zeros_like(surprise[0])
    for step in reversed(range(len(rewards))):
        after = surprise[step] + goes_on[step] * TRACE * after
        result[step] = after
    return result.astype(np.float32)


def main(seconds: float, games: int) -> None:
    """Learn for so long, and print steps a second and the score at the end. The time counts from the imports on."""
    from bench.peers.curve import Point, figures

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began = time.perf_counter()
    alone, steps, curve = Alone(games, 0), 0, list[Point]()
    while (taken := time.perf_counter() - began) < seconds:
        steps += alone.go_on(taken / _USUAL_RUN_S)
        score = sum(alone.scores) / len(alone.scores) if alone.scores else None
        curve.append(Point(time.perf_counter() - began, steps, score))
    print(json.dumps(figures(curve, seconds)))


if __name__ == "__main__":
    try:
        main(float(sys.argv[1]), int(sys.argv[2]))
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
