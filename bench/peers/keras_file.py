"""Weights from model to models by a file, the original's way: `python -m bench.peers.keras_file [--quick]`.

One process saves its Keras model, the others load it into theirs. All are forked from one that imported TensorFlow and
did nothing with it, with one thread each: quicker than the original, which is not what is measured.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from bench.peers.children import Pipe, end_all, forked
from bench.peers.ready import network

__all__ = ["measured"]

RECEIVERS: Final = (8, 32)
_SAVE, _LOAD = "save", "load"


def _node(pipe: Pipe, path: Path) -> None:
    """Save or load as told, and answer with a weight that changes with each save."""
    model = network()
    model(np.ones((1, 10, 10, 1), np.float32))
    last = model.weights[-1]
    pipe.send("here")
    while True:
        if pipe.recv() == _SAVE:
            model.save_weights(path)
        else:
            model.load_weights(path)
        pipe.send(float(np.asarray(last)[0]))
        last.assign(last + 1)


def measured(versions: int) -> dict[str, float]:
    """Return milliseconds from before the model is saved until the last has loaded it: for 8, and for 32."""
    with tempfile.TemporaryDirectory(prefix="gs-") as home:
        path = Path(home) / "model.weights.h5"
        pipes = [forked(_node, path) for _ in range(max(RECEIVERS) + 1)]
        for pipe in pipes:
            pipe.recv()
        saver, *others = pipes
        taken = {f"to_{count}": _saved_and_loaded(saver, others[:count], versions) for count in RECEIVERS}
        end_all()
    return taken


def _saved_and_loaded(saver: Pipe, others: list[Pipe], versions: int) -> float:
    taken = []
    for _ in range(1 + versions):
        began = time.perf_counter()
        saver.send(_SAVE)
        saved = saver.recv()
        for pipe in others:
            pipe.send(_LOAD)
        loaded = {pipe.recv() for pipe in others}
        taken.append(1000 * (time.perf_counter() - began))
        if loaded != {saved}:
            raise RuntimeError(f"{saved} was saved, {loaded} was loaded")
    return statistics.median(taken[1:])


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two versions instead of four")
    typed = parser.parse_args()
    import tensorflow  # noqa: F401, ICN001 (once, before the others are forked)

    print(json.dumps(measured(2 if typed.quick else 4)))


if __name__ == "__main__":
    main()
