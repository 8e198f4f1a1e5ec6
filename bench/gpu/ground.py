"""What the parts of the verification stand on: a daemon of its own, the GPU, and the frameworks that are there."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.host import Daemon, running_daemon, until
from gpusched.model.status import JobStatus, ReplicaStatus

__all__ = ["FRAMEWORKS", "Ground", "Held", "block", "ground", "table", "versions"]

FRAMEWORKS: Final = ("torch", "jax", "cupy", "tensorflow")


class Held(NamedTuple):
    """What a replica holds that has filled its share, in MiB; `driver`: by the driver, its context included."""

    replica: ReplicaStatus
    framework: str
    got: int
    pool: int
    driver: int
    error: str

    @property
    def context(self) -> int:
        """What the process takes beside its pool."""
        return self.driver - self.pool


class Ground:
    """A running daemon on a real GPU. `frameworks`: those of FRAMEWORKS that can be imported."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.frameworks = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]

    def gpusched(self, *words: str, patience_s: float = 300.0, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run `gpusched words...` to its end."""
        argv = [sys.executable, "-m", "gpusched", *words]
        env = {**self.daemon.environ, **environ}
        return subprocess.run(argv, env=env, check=False, capture_output=True, text=True, timeout=patience_s)

    def job(self, job_id: str) -> JobStatus:
        """Return a job as the daemon shows it."""
        (found,) = [job for job in self.daemon.jobs(100) if job.id == job_id]
        return found

    def device(self) -> dict[str, Any]:
        """Return the first device as `gpusched status --json` shows it."""
        first: dict[str, Any] = json.loads(self.daemon.command("status", "--json"))["devices"][0]
        return first

    def filled(self, job_id: str) -> list[Held]:
        """Wait until all replicas of a job hold their shares, and the daemon has seen that; return what each holds."""
        until(lambda: (alive := self._alive(job_id)) and all(map(_told, alive)), f"all of {job_id} hold their shares")
        now = {process["pid"]: process["memory_mib"] for process in self.device()["processes"]}

        def seen() -> bool:
            uses = [(one.usage[-1].device_mib or 0, now.get(one.pid, 0)) for one in self._alive(job_id) if one.usage]
            return len(uses) == len(self.job(job_id).replicas) and all(use >= shown for use, shown in uses)

        until(seen, f"the daemon has seen the memory of {job_id}")
        return [_held(one, now) for one in self._alive(job_id)]

    def end(self, job_id: str, frameworks: Sequence[str]) -> None:
        """Let the replicas of a job end, in this order of their frameworks, and wait for the job's end."""
        for framework in frameworks:
            (self.run_dir(job_id) / f"end.{framework}").touch()
            until(
                lambda name=framework: all(one.pid is None for one in self._of(job_id, name)),  # type: ignore[misc]
                f"{framework} of {job_id} has ended",
            )
        until(lambda: self.job(job_id).ended, f"{job_id} has ended")

    def run_dir(self, job_id: str) -> Path:
        """Return the directory of a job."""
        return self.daemon.state / "jobs" / job_id

    def _alive(self, job_id: str) -> Sequence[ReplicaStatus]:
        job = self.job(job_id)
        if job.ended:
            raise RuntimeError(f"{job_id} has ended: {self.gpusched('logs', job_id).stdout[-2000:]}")
        return job.replicas

    def _of(self, job_id: str, framework: str) -> list[ReplicaStatus]:
        return [one for one in self.job(job_id).replicas if (_told(one) or {}).get("framework") == framework]


def _told(replica: ReplicaStatus) -> dict[str, Any] | None:
    """Return what a script has printed of its filled share, and its framework."""
    with contextlib.suppress(OSError, TypeError):
        for line in open(str(replica.log), encoding="utf-8"):  # noqa: SIM115, PTH123
            if line.startswith('{"framework"'):
                found: dict[str, Any] = json.loads(line)
                return found
    return None


def _held(replica: ReplicaStatus, now: Mapping[int, int]) -> Held:
    told = _told(replica) or {}
    return Held(replica, told["framework"], told["mib"], told["pool_mib"], now[replica.pid or 0], told["error"])


def versions(frameworks: Sequence[str]) -> str:
    """Return the versions of frameworks, as one line."""
    brought_by = metadata.packages_distributions()
    known = {name: brought_by[name][0] for name in frameworks if name in brought_by}
    return ", ".join(f"{name} {metadata.version(known[name]) if name in known else '?'}" for name in frameworks)


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """Give a daemon in a new directory; with the block it ends, and its jobs."""
    with running_daemon({**os.environ, "COLUMNS": "132"}) as daemon:
        yield Ground(daemon)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def block(*texts: str) -> str:
    """Return what programs have printed, as it was."""
    return "".join(f"```\n{text.strip()}\n```\n\n" for text in texts)
