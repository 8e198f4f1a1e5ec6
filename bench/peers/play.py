"""Plays Snake in one of many ways after the other, and says how fast: `python -m bench.peers.play CORES`, 0 for all.

Each line that is read, `ROW SECONDS`, is answered by a line of JSON. TensorFlow is imported once, and each row is
played by a fork of its own, so that no context, thread or compiled function of one serves another.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Final, TextIO

__all__ = ["ROWS", "Play", "rate"]

Play = Callable[[], int]
"""Plays for a moment, and returns how many environment steps that were."""

ROWS: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("predict", "eager", "function", "session", "numpy", "lite"), ("bench.peers.play_one", "player")),
    **dict.fromkeys(("ours-256", "ours-1024", "strong-256"), ("bench.peers.play_many", "player")),
}
"""What makes the Play of a row: the function of a module, which is called with the row's name."""

_WARM: Final = 0.2


def main() -> None:
    """Answer until there is nothing to read."""
    if cores := int(sys.argv[1]):  # before anything counts them
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is no answer
    import_module("keras")
    for line in sys.stdin:
        row, seconds = line.split()
        pid = os.fork()
        if not pid:
            _play(row, float(seconds), answers)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            _say({"failed": f"it ended with code {status}"}, answers)


def _play(row: str, seconds: float, answers: TextIO) -> None:
    """Be the fork, and end it."""
    code = 1
    try:
        module, name = ROWS[row]
        play: Play = getattr(import_module(module), name)(row)
        rate(play, seconds * _WARM)
        _say({"steps": rate(play, seconds)}, answers)
        code = 0
    except ImportError as error:
        _say({"missing": str(error)}, answers)
        code = 0
    except Exception:  # noqa: BLE001 (a fork must not go on as if it were its parent)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _say(answer: dict[str, float] | dict[str, str], answers: TextIO) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def rate(play: Play, seconds: float) -> float:
    """Return how many environment steps `play` makes in a second, measured for at least so many seconds."""
    made, began = 0, time.perf_counter()
    while not made or time.perf_counter() - began < seconds:
        made += play()
    return made / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
