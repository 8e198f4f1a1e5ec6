"""What is measured every ten seconds: memory, descriptors, threads and files, from /proc and the directories."""

import contextlib
import csv
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from tests.soak.host import Host
from tests.soak.processes import Process

__all__ = ["EVERY_S", "Measurer", "Sample", "read_samples"]

EVERY_S: Final = 10.0


@dataclass(frozen=True)
class Sample:
    """One moment. Memory in KiB, time in seconds since the begin.

    Private pages are judged: a share of the pages that processes have in common (PSS) rises as the others end.

    `steady_*`: of the supervisors and guards of the jobs that run all the while; memory is the mean of private pages.
    """

    time: float
    daemon: int
    daemon_rss: int
    daemon_private: int
    daemon_fds: int
    daemon_threads: int
    job_processes: int
    steady_private: int
    steady_fds: int
    steady_threads: int
    live_jobs: int
    kept_jobs: int
    state_files: int
    runtime_files: int
    lease_files: int
    db_kib: int


class Measurer:
    """Appends samples to a CSV file."""

    def __init__(self, host: Host, path: Path) -> None:
        self._host, self._path = host, path
        self.samples: list[Sample] = []
        self._begun = time.monotonic()
        with path.open("w", newline="") as file:
            csv.writer(file).writerow([field.name for field in fields(Sample)])

    def sample(self, seen: list[Process], live: int, steady: set[str]) -> Sample:
        """Take a sample; `seen` are all processes, `live` the jobs that run or wait, `steady` the ids that stay."""
        daemon = self._host.daemon_pid()
        jobs = [one.pid for one in seen if one.role == "job"]
        staying = [one.pid for one in seen if one.role == "job" and Path(one.run_dir).name in steady]
        private = [_memory(pid)[1] for pid in staying]
        kept = _count(self._host.state / "jobs")
        rss, own = _memory(daemon)
        one = Sample(
            round(time.monotonic() - self._begun, 1), daemon, rss, own, _fds(daemon), _threads(daemon),
            len(jobs), sum(private) // max(len(private), 1), max(map(_fds, staying), default=0),
            max(map(_threads, staying), default=0), live, kept, self._state_files(), _count(self._host.runtime),
            _count(self._host.leases), _size(self._host.state, "gpusched.db"),
        )  # fmt: skip
        self.samples.append(one)
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(asdict(one).values())
        return one

    def _state_files(self) -> int:
        if self._host.can_fill:
            about = os.statvfs(self._host.state)
            return about.f_files - about.f_ffree
        return sum(len(files) + len(folders) for _, folders, files in os.walk(self._host.state))


def read_samples(path: Path) -> list[Sample]:
    """Read what a Measurer wrote."""
    with path.open(newline="") as file:
        return [
            Sample(**{key: float(value) if key == "time" else int(value) for key, value in row.items()})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


def _memory(pid: int) -> tuple[int, int]:
    """RSS, private pages."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
        return values["Rss"], values["Private_Clean"] + values["Private_Dirty"]
    return 0, 0


def _fds(pid: int) -> int:
    return _count(Path(f"/proc/{pid}/fd"))


def _threads(pid: int) -> int:
    return _count(Path(f"/proc/{pid}/task"))


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in os.scandir(folder))
    except OSError:
        return 0


def _size(folder: Path, name: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(name) if path.is_file()) // 1024
