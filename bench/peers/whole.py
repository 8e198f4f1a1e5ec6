"""Ours: `gpusched launch snake` as it is typed, for so long. `python -m bench.peers.whole SECONDS WORDS...`.

Of the words `--cpus N` is the bench's own: all processes keep to the first N CPUs.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.fresh import ROOT
from bench.peers.curve import Point, figures
from bench.peers.starting import own_state
from bench.processes import tree_pss_mb
from gpusched.linux.processes import become_subreaper, kill_descendants

__all__: list[str] = []

_END_PATIENCE_S: Final = 20.0


class Reported(msgspec.Struct, frozen=True):
    """What the learner says of itself in a line of progress.jsonl."""

    time: float
    step: int | None = None
    score: float | None = None


def main(seconds: float, words: Sequence[str]) -> None:
    """Let the command run, look at what its learner reported and at its memory, and end it."""
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        home = Path(folder)
        with (home / "launch.log").open("wb") as log:
            argv = [sys.executable, "-m", "gpusched", "launch", "snake", *words]
            environ = {**os.environ, **own_state(home)}
            began = time.time()
            launch = subprocess.Popen(argv, cwd=ROOT, env=environ, stdout=log, stderr=log)
        try:
            launch.wait(seconds)
            sys.exit(f"the launch ended before its time: {(home / 'launch.log').read_text()}")
        except subprocess.TimeoutExpired:
            found = figures(_curve(home, began), seconds) | {"pss": tree_pss_mb(os.getpid(), itself=False)}
        finally:
            kill_descendants(_END_PATIENCE_S)
    print(json.dumps(found))


def _curve(home: Path, began: float) -> Sequence[Point]:
    path = next(home.glob("state/jobs/*/progress.jsonl"))
    told = msgspec.json.Decoder(Reported).decode_lines(path.read_bytes())
    return [Point(one.time - began, one.step, one.score) for one in told if one.step is not None]


def _keep_to_cpus(words: list[str]) -> list[str]:
    """Keep to so many CPUs if `words` ask for that; return the others."""
    if "--cpus" not in words:
        return words
    at = words.index("--cpus")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(words[at + 1])])
    return [*words[:at], *words[at + 2 :]]


if __name__ == "__main__":
    main(float(sys.argv[1]), _keep_to_cpus(sys.argv[2:]))
