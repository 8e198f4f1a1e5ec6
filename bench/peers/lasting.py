"""What needs no quiet host, all at the same time: two ways of starting that train for long, and forks that are checked.

`python -m bench.peers.lasting COUNT SECONDS ROUNDS CHECKED`: prints an object with the figures of each. The seconds
count from the start.
"""

import json
import subprocess
import sys
import time
from typing import IO, Any, Final

__all__: list[str] = []

_WAYS: Final = {"ours": "command", "forkserver": "forkserver"}


class Trainers:
    """The processes of one way of starting."""

    def __init__(self, way: str, count: str) -> None:
        argv = [sys.executable, "-m", "bench.peers.training", way, count]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._way = way

    def ask(self, word: str) -> str:
        """Say a word, if it is one, and return the answer. Exits if there is none."""
        if word:
            _open(self._process.stdin).write(f"{word}\n")
            _open(self._process.stdin).flush()
        told = _open(self._process.stdout).readline().strip()
        if not told:
            sys.exit(f"{self._way}: no answer to {word or 'the start'}")
        return told

    def end(self) -> None:
        """End them."""
        _open(self._process.stdin).close()
        self._process.wait()


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # noqa: S101 (for the type checker)
    return stream


def main(count: str, seconds: str, rounds: str, checked: str) -> None:
    """Start both ways, train, and print what all of it gave. Both are there whenever one is measured."""
    deadline = time.monotonic() + float(seconds)
    trainers = {name: Trainers(way, count) for name, way in _WAYS.items()}
    for each in trainers.values():
        each.ask("")
    for each in trainers.values():
        each.ask("train")
    figures: dict[str, Any] = {"forks": _checked(rounds, checked)}
    time.sleep(max(0.0, deadline - time.monotonic()))
    steps = {name: each.ask("halt") for name, each in trainers.items()}
    for name, each in trainers.items():
        figures[name] = {"steps": int(steps[name]), "pss": float(each.ask("memory"))}
    for each in trainers.values():
        each.end()
    print(json.dumps(figures))


def _checked(rounds: str, count: str) -> dict[str, float]:
    argv = [sys.executable, "-m", "bench.peers.check_forks", rounds, count]
    told = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, float] = json.loads(told.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
