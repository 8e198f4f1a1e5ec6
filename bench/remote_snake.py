"""Snake with its actors here and with the same on another host, in turns: `python -m bench.remote_snake`. Needs root.

Both hosts are network namespaces of this machine and share its CPUs, so the difference is what encryption, TCP and
copies cost. A run's figure is the median of the steps a second that its learner reports in the last two thirds of it.
"""

import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.fresh import ROOT
from bench.host import arguments, print_results, until
from bench.peers.starting import own_state
from tests.network.hosts import Host, joined_by_veth

_LISTEN: Final = ("--listen", "tcp://0.0.0.0:5555")
_END_S: Final = 40.0

Result = tuple[str, float, str, str]


class Reported(msgspec.Struct, frozen=True):
    """What the learner says of its speed in a line of progress.jsonl."""

    time: float
    steps_per_s: float | None = None


@contextmanager
def started(host: Host, home: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `gpusched` there, with a state of its own; end it as Ctrl-C does."""
    home.mkdir(exist_ok=True)
    argv = host.command(sys.executable, "-m", "gpusched", *words)
    with subprocess.Popen(
        argv, cwd=ROOT, env={**os.environ, **own_state(home)}, stdout=subprocess.PIPE, text=True
    ) as one:
        try:
            yield one
        finally:
            one.send_signal(signal.SIGINT)
            one.communicate(timeout=_END_S)


def rate(home: Path, seconds: float) -> float:
    """Let the job in `home` train for so long from its first step on; return its steps a second."""
    until(lambda: len(_reports(home)) > 1, "the learner has learned")
    time.sleep(seconds)
    told = _reports(home)
    since = told[-1].time - seconds * 2 / 3
    return statistics.median(one.steps_per_s for one in told if one.time >= since and one.steps_per_s is not None)


def _reports(home: Path) -> list[Reported]:
    paths = [*home.glob("state/jobs/*/progress.jsonl")]
    told = msgspec.json.Decoder(Reported).decode_lines(paths[0].read_bytes()) if paths else []
    return [one for one in told if one.steps_per_s]


def local(here: Host, home: Path, actors: int, seconds: float) -> float:
    """Return the rate with all actors on the learner's host."""
    with started(here, home, "launch", "snake", "--procs", str(actors), "--network", "small"):
        return rate(home, seconds)


def remote(here: Host, there: Host, home: Path, actors: int, seconds: float) -> float:
    """Return the rate with all actors on the other host."""
    one, other = home / "one", home / "other"
    home.mkdir()
    with started(here, one, "launch", "snake", "--procs", "0", "--network", "small", *_LISTEN) as launched:
        assert launched.stdout is not None  # noqa: S101 (for the type checker)
        _, line = launched.stdout.readline(), launched.stdout.readline()
        with started(there, other, *shlex.split(line)[1:], "--procs", str(actors)):
            return rate(one, seconds)


def main() -> None:
    """Measure both, round by round."""
    typed = arguments(
        __doc__, ("--actors", 4, "processes that play"), ("--seconds", 30, "of a run"), ("--rounds", 5, "of both")
    )
    here_rates, there_rates = [], []
    with tempfile.TemporaryDirectory(prefix="gs-") as folder, joined_by_veth() as (here, there):
        for number in range(typed.rounds):
            home = Path(folder)
            here_rates.append(local(here, home / f"local{number}", typed.actors, typed.seconds))
            there_rates.append(remote(here, there, home / f"remote{number}", typed.actors, typed.seconds))
    pairs = [there / here for here, there in zip(here_rates, there_rates, strict=True)]
    results: list[Result] = [
        (f"{typed.actors} actors on the learner's host", statistics.median(here_rates), "1/s", ""),
        (f"{typed.actors} actors on another host", statistics.median(there_rates), "1/s", ""),
        ("of the local steps", 100 * statistics.median(pairs), "%", ">= 90"),
        ("  least of the rounds", 100 * min(pairs), "%", ""),
        ("  most of the rounds", 100 * max(pairs), "%", ""),
    ]
    print_results(results, as_json=typed.json)


if __name__ == "__main__":
    main()
