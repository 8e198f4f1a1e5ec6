"""What each of the launched processes does, however it was started: the original's network, once, then as it is told.

TensorFlow is imported inside, as the original did, so that a process that has it already is not made to import it anew.
"""

import contextlib
import os
import select
import socket
from pathlib import Path
from typing import Any, Final

__all__ = ["CHECK", "END", "HALT", "SOCKET", "TRAIN", "be_ready", "network"]

SOCKET: Final = "BENCH_READY_SOCKET"
"""The variable that names the unix socket on which a process tells that it is ready, and is told what to do next."""

END, CHECK, TRAIN, HALT = b"e", b"c", b"t", b"h"
"""End; train a little and say whether that is right; train until told to halt, and say how many steps that were."""

_BATCH: Final = 64
_STEPS: Final = 5
_LEAST: Final = 20
_LOW: Final = 15  # so that those that are checked meanwhile are done before the ten minutes are over
_ACTIONS: Final = 4


def be_ready(path: str) -> None:
    """Build the network, use it once, say so on the socket `path`, and do what comes back until that is the end."""
    import numpy as np

    model = network()
    found = model(np.ones((1, 10, 10, 1), np.float32)).numpy()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        _say(link, int(np.isfinite(found).all()))
        while (order := link.recv(1)) not in {END, b""}:
            if order != HALT:
                _say(link, _is_right(model) if order == CHECK else _trained_until_told(model, link))


def network() -> Any:
    """Return the original's network: 10x10x1 -> conv 100@4x4 -> conv 200@3x3 -> dense 200 -> dense 4."""
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((10, 10, 1)),
            layers.Conv2D(100, 4, activation="relu"),
            layers.Conv2D(200, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(200, activation="relu"),
            layers.Dense(_ACTIONS),
        ]
    )


def _say(link: socket.socket, number: int) -> None:
    link.sendall(f"{os.getpid()} {number}\n".encode())


class Training:
    """Steps of Adam on random batches, each compiled function made in this process."""

    def __init__(self, model: Any) -> None:
        import numpy as np
        import tensorflow as tf

        self._random = np.random.default_rng(os.getpid())
        self._model = model
        optimizer = tf.keras.optimizers.Adam(1e-3)

        @tf.function  # type: ignore[untyped-decorator]
        def step(frames: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(frames))
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        self.step = step

    def batch(self) -> tuple[Any, Any]:
        """Return random frames and labels."""
        import numpy as np

        frames = self._random.random((_BATCH, 10, 10, 1), np.float32)
        return frames, self._random.integers(0, _ACTIONS, _BATCH)


def _is_right(model: Any) -> int:
    """Return 1 if a few steps on one batch lower the loss and the model still predicts numbers."""
    import numpy as np

    training = Training(model)
    frames, labels = training.batch()
    losses = [float(training.step(frames, labels)) for _ in range(_STEPS)]
    predicted = model.predict(frames, verbose=0)
    return int(losses[-1] < losses[0] and predicted.shape == (_BATCH, _ACTIONS) and bool(np.isfinite(predicted).all()))


def _trained_until_told(model: Any, link: socket.socket) -> int:
    """Train on a new batch at each step until an order lies on `link`, twenty times at least; return how often."""
    _step_back()
    training, steps = Training(model), 0
    while steps < _LEAST or not select.select([link], [], [], 0)[0]:
        training.step(*training.batch())
        steps += 1
    return steps


def _step_back() -> None:
    """Leave most of the CPUs to whatever else wants them, and have as much of the rest however it was started.

    Where Linux shares CPUs between sessions (sched(7), autogroup), each needs one, and a low priority of its own.
    """
    with contextlib.suppress(PermissionError):  # it leads a session
        os.setsid()
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(f"{_LOW}", encoding="ascii")
    os.nice(_LOW)


if __name__ == "__main__":
    be_ready(os.environ[SOCKET])
