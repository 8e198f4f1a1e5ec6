"""What the benches of the daemon share: a real daemon with a state directory of its own, and how its cost is read."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.processes import cpu_s, memory_mb
from gpusched.control.client import Client
from gpusched.control.messages import Jobs, ListJobs, Ping, Pong, Shutdown, Stop
from gpusched.errors import NoDaemon
from gpusched.model.status import JobStatus
from gpusched.settings import load_settings

__all__ = ["Daemon", "arguments", "cpu_s", "median_s", "memory_mb", "print_results", "until"]

_PATIENCE_S: Final = 60.0


class Daemon:
    """A daemon of this checkout, from `start` to `stop`, with all that it keeps under `home`."""

    def __init__(self, home: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.state = home / "state"
        own = {"GPUSCHED_STATE_DIR": str(self.state), "GPUSCHED_RUNTIME_DIR": str(home / "run")}
        own |= {"GPUSCHED_LEASE_DIR": str(home / "leases"), "GPUSCHED_CONFIG": "", "HOME": str(home)}
        self.environ = {**environ, **own}
        self.client = Client(load_settings(self.environ))
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it, and return the seconds until it answers."""
        began = time.perf_counter()
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "daemon.log").open("ab") as log:
            argv = [sys.executable, "-m", "gpusched.daemon"]
            self._process = subprocess.Popen(argv, env=self.environ, stdout=log, stderr=log, start_new_session=True)
        until(self._answers, "the daemon answers", every_s=0.002)
        self.pid = self._process.pid
        return time.perf_counter() - began

    def stop(self) -> None:
        """End it; jobs go on."""
        if self._process is not None:
            with contextlib.suppress(NoDaemon):
                self.client.ask(Shutdown())
            self._process.wait(10)
            self._process = None
        self.client.close()

    def kill(self) -> None:
        """Kill it, as nothing else can: it saves nothing; jobs go on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end_jobs(self) -> None:
        """End all jobs, and wait for that."""
        self.client.ask(Stop(everything=True, kill=True), patience_s=_PATIENCE_S)
        until(lambda: not any(job.ended is None for job in self.jobs(0)), "all jobs have ended")

    def jobs(self, ended: int) -> tuple[JobStatus, ...]:
        """Return the jobs that live, and so many that ended."""
        answer = self.client.ask(ListJobs(ended=ended), patience_s=_PATIENCE_S)
        assert isinstance(answer, Jobs)  # noqa: S101 (for the type checker)
        return answer.jobs

    def command(self, *words: str) -> str:
        """Run `gpusched words...` and return what it printed."""
        argv = [sys.executable, "-m", "gpusched", *words]
        told = subprocess.run(argv, env=self.environ, check=False, capture_output=True, text=True)
        if told.returncode:
            sys.exit(f"gpusched {' '.join(words)}: {told.stdout}{told.stderr}")
        return told.stdout

    def _answers(self) -> bool:
        with contextlib.suppress(NoDaemon):
            return isinstance(self.client.ask(Ping()), Pong)
        if self._process is not None and self._process.poll() is not None:
            sys.exit((self.state / "daemon.log").read_text())
        self.client.close()
        return False


@contextlib.contextmanager
def running_daemon(environ: Mapping[str, str] = os.environ) -> Iterator[Daemon]:
    """Give a daemon that runs in a new directory; its jobs and itself end with the block, and the directory goes."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as home:
        daemon = Daemon(Path(home), environ)
        try:
            daemon.start()
            yield daemon
        finally:
            with contextlib.suppress(NoDaemon):
                daemon.end_jobs()
            daemon.stop()


def until(condition: Callable[[], object], what: str, every_s: float = 0.01) -> None:
    """Wait until `condition` holds."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {_PATIENCE_S:.0f} s in vain until {what}")
        time.sleep(every_s)


def median_s(action: Callable[[], object], times: int = 5) -> float:
    """Return the median of the seconds that `action` takes."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def arguments(about: str | None, *options: tuple[str, int, str]) -> argparse.Namespace:
    """Return what was typed: `--json`, and options that are whole numbers, each with its default and its meaning."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    for name, default, meaning in options:
        parser.add_argument(name, type=int, default=default, help=f"{meaning} (default {default})")
    return parser.parse_args()


def print_results(results: Sequence[tuple[str, float, str, str]], *, as_json: bool) -> None:
    """Print figures, each with what it is of, its unit, and what it should be."""
    if as_json:
        rows: list[dict[str, Any]] = [
            {"what": what, "value": round(value, 4), "unit": unit, "wanted": wanted}
            for what, value, unit, wanted in results
        ]
        print(json.dumps(rows, indent=1))
        return
    width = max(len(what) for what, *_ in results)
    for what, value, unit, wanted in results:
        print(f"{what:<{width}}  {value:>10.3f} {unit:<6} {wanted}")
