"""The original's agent: a TensorFlow 1 graph, one Session.run for one state, and a Saver's file for its weights.

It learns how likely a fruit still follows a state and an action, by cross-entropy, and plays the likelier ones more.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEARNING_RATE", "MINIBATCH", "OriginalAgent", "sampled"]

LEARNING_RATE: Final = 1e-3
MINIBATCH: Final = 128
_SHARPNESS: Final = 4.0
_SHAPES: Final = (("1", (4, 4, 1, 100)), ("2", (3, 3, 100, 200)), ("3", (5000, 200)), ("4", (200, 4)))

Batch = tuple[list[Any], list[int], list[float]]
"""States, actions and values of one worker's games, step by step."""


def sampled(judged: NDArray[np.float32], drawn: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return an action for each row of `judged` [n, 4], by numbers `drawn` [n] from 0 to 1."""
    chances = np.exp(_SHARPNESS * (judged - judged.max(axis=1, keepdims=True))).cumsum(axis=1)
    return np.asarray((chances < drawn[:, None] * chances[:, -1:]).sum(axis=1))


class OriginalAgent:
    """A network of 1.2 million weights in a graph and a session of its own. `threads` 0: TensorFlow decides."""

    def __init__(self, path: str, threads: int) -> None:
        import tensorflow as tf

        one = tf.compat.v1
        self._path = path
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._states = one.placeholder(tf.float32, (None, 10, 10, 1))
            self._actions = one.placeholder(tf.int32, (None,))
            self._values = one.placeholder(tf.float32, (None,))
            weights = [_layer(one, name, shape) for name, shape in _SHAPES]
            self._judged = _forward(tf, self._states, weights)
            chosen = tf.gather(self._judged, self._actions, batch_dims=1)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(self._values, chosen)
            self._train = one.train.AdamOptimizer(LEARNING_RATE).minimize(tf.reduce_mean(losses))
            self._saver = one.train.Saver([weight for pair in weights for weight in pair])
            bound = {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": threads}
            self._session = one.Session(config=one.ConfigProto(**bound))
            self._session.run(one.global_variables_initializer())

    def act(self, states: Sequence[Any]) -> int:
        """Return an action for a list of one state."""
        fed = np.asarray(states, np.float32)[..., None]
        judged = self._session.run(self._judged, {self._states: fed})
        return int(sampled(judged, np.random.random(1))[0])  # noqa: NPY002 (as the original had it)

    def train(self, batches: Sequence[Batch]) -> None:
        """Learn from the games of all workers, in minibatches, once."""
        states = np.concatenate([np.asarray(one[0], np.float32).reshape(-1, 10, 10, 1) for one in batches])
        actions = np.concatenate([np.asarray(one[1], np.int32) for one in batches])
        values = np.concatenate([np.asarray(one[2], np.float32) for one in batches])
        order = np.random.permutation(len(states))  # noqa: NPY002
        for part in np.array_split(order, max(1, len(states) // MINIBATCH)):
            fed = {self._states: states[part], self._actions: actions[part], self._values: values[part]}
            self._session.run(self._train, fed)

    def save(self) -> None:
        """Write the weights for the others."""
        with self._graph.as_default():
            self._saver.save(self._session, self._path, write_meta_graph=False)

    def load(self) -> None:
        """Take the weights that were saved."""
        with self._graph.as_default():
            self._saver.restore(self._session, self._path)


def _layer(one: Any, name: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    kernel = one.get_variable(f"kernel_{name}", shape, initializer=one.glorot_uniform_initializer())
    return kernel, one.get_variable(f"bias_{name}", shape[-1:], initializer=one.zeros_initializer())


def _forward(tf: Any, states: Any, weights: Sequence[tuple[Any, Any]]) -> Any:
    (first, bias_1), (second, bias_2), (third, bias_3), (last, bias_4) = weights
    x = tf.nn.relu(tf.nn.conv2d(states, first, 1, "VALID") + bias_1)
    x = tf.nn.relu(tf.nn.conv2d(x, second, 1, "VALID") + bias_2)
    x = tf.nn.relu(tf.reshape(x, (-1, 5000)) @ third + bias_3)
    return x @ last + bias_4
