"""The original's program, whole: process 0 trains, four play; batches as lists through Pipes, weights through a file.

The launcher's main thread waits for the batches of all workers by looking again and again, while one thread for each
process listens. `--fixed` mends the two things that cost nothing to mend: it sleeps between two looks, and each process
computes with one thread. `python -m bench.peers.original_loop SECONDS [--fixed]`
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.peers.curve import Point, figures
from bench.peers.original_game import OriginalGame
from bench.processes import tree_pss_mb

__all__ = ["Launcher"]

_WORKERS: Final = 4
_GAMES: Final = 100
_MOST_STEPS: Final = 10_000
_MOST_HUNGER: Final = 100


class AgentProcess(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    """A process with an agent: number 0 trains with what it is sent, the others play and then wait for weights."""

    def __init__(self, pipe: Any, number: int, path: str, threads: int) -> None:
        super().__init__(daemon=True)
        self._pipe, self._number, self._path, self._threads = pipe, number, path, threads

    def run(self) -> None:
        """Work until killed."""
        from bench.peers.original_agent import OriginalAgent  # TensorFlow is imported in each process

        np.random.seed(self._number * 100)  # noqa: NPY002 (as the original had it)
        self._agent = OriginalAgent(self._path, self._threads)
        while True:
            if self._number:
                self._pipe.send(self._play())
            what, batches = self._pipe.recv()
            if what == "load":
                self._agent.load()
            else:
                self._agent.train(batches)
                self._agent.save()
                self._pipe.send("saved")

    def _play(self) -> tuple[float, tuple[list[Any], list[int], list[float]]]:
        """Play a hundred games, or ten thousand steps, and return their mean score and all their steps."""
        states: list[Any] = []
        actions: list[int] = []
        values: list[float] = []
        scores, game = [], OriginalGame()
        for _ in range(_GAMES):
            self._play_one(game, states, actions, values)
            scores.append(game.score)
            if len(states) >= _MOST_STEPS:
                break
        return float(np.mean(scores)), (states, actions, values)

    def _play_one(self, game: OriginalGame, states: list[Any], actions: list[int], values: list[float]) -> None:
        """Play a game; each step that a fruit follows is worth 1, the others 0."""
        state, step, last, over = game.start(), 0, -1, False
        while not over and step - last < _MOST_HUNGER:
            action = self._agent.act([state])
            after, reward, over = game.step(action)
            if reward:
                values += [1] * (step - last)
                last = step
            states.append([state])
            actions.append(action)
            state, step = after, step + 1
        values += [0] * (step - last - 1)


class Launcher:
    """The parent of all: passes batches on to process 0, and tells the others when the file is new."""

    def __init__(self, path: str, *, fixed: bool) -> None:
        self._fixed = fixed
        self._pipes: dict[int, Any] = {}
        self._scores: dict[int, float] = {}
        self._batches: dict[int, Any] = {}
        for number in range(_WORKERS + 1):
            here, there = multiprocessing.Pipe()
            self._pipes[number] = here
            AgentProcess(there, number, path, int(fixed)).start()
        for number in self._pipes:
            threading.Thread(target=self._listen, args=(number,), daemon=True).start()

    def run(self, seconds: float, began: float) -> Sequence[Point]:
        """Train until so many seconds after `began`, and return how it went."""
        curve: list[Point] = []
        steps = 0
        while (now := time.monotonic() - began) < seconds:
            if len(self._scores) == _WORKERS:
                while len(self._batches) < _WORKERS:
                    time.sleep(0.001)  # a score is stored before its batch
                batches = list(self._batches.values())
                steps += sum(len(batch[1]) for batch in batches)
                curve.append(Point(now, steps, float(np.mean(list(self._scores.values())))))
                self._scores.clear()
                self._batches.clear()
                self._pipes[0].send(("train", batches))
            elif self._fixed:
                time.sleep(0.001)
        return curve

    def _listen(self, number: int) -> None:
        while True:
            said = self._pipes[number].recv()
            if said == "saved":
                for worker in range(1, _WORKERS + 1):
                    self._pipes[worker].send(("load", None))
            else:
                self._scores[number], self._batches[number] = said


def main() -> None:
    """Run it and print its figures."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, help="how long")
    parser.add_argument("--fixed", action="store_true", help="sleep instead of spin, one thread each")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        curve = Launcher(str(Path(folder) / "model"), fixed=typed.fixed).run(typed.seconds, began)
        found = figures(curve, typed.seconds) | {"pss": tree_pss_mb(os.getpid())}
        for process in multiprocessing.active_children():
            process.kill()
    print(json.dumps(found), flush=True)
    os._exit(0)  # the threads that listen never end


if __name__ == "__main__":
    main()
