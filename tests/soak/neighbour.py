"""Another user of the soak's host, with a lease, files and a process: none of them may be touched."""

import os
from pathlib import Path

from gpusched.leases.directory import LeaseDirectory, LeaseHandle
from tests.soak.gpus import COUNT, Gpus
from tests.soak.journal import Journal
from tests.soak.leases import read_held
from tests.soak.processes import read_process
from tests.supervisor.leasing import NOBODY, Fork, share

__all__ = ["Neighbour"]

JOB = "theirs-1"
_holds: list[LeaseHandle] = []  # of the fork, for as long as it lives


class Neighbour:
    """It holds 1,000 MiB of the last device. Only root can be two users."""

    def __init__(self, root: Path, leases: Path) -> None:
        self._folder, self._leases = root / "neighbour", leases
        self._folder.mkdir()
        for name in ("status.json", "gpusched.db", "a.lease"):
            (self._folder / name).write_text(name)
            os.chown(self._folder / name, NOBODY, NOBODY)
        os.chown(self._folder, NOBODY, NOBODY)
        self._process = Fork(NOBODY, self._commit)
        self.pid = self._process.pid
        self._before = self._seen()

    def check(self, journal: Journal) -> None:
        """Compare all that is theirs with what it was."""
        journal.checks["other users' things are untouched"] += 1
        if (now := self._seen()) != self._before:
            journal.violation("other users' things are untouched", f"{self._before} became {now}")
            self._before = now

    def end(self) -> None:
        self._process.end()

    def _commit(self) -> None:
        os.setsid()  # a Ctrl-C is not meant for it
        directory = LeaseDirectory(self._leases)
        with directory.locked():
            _holds.append(directory.commit(JOB, [share(1000, device=Gpus.uuid(COUNT - 1))], self._folder))

    def _seen(self) -> list[object]:
        paths = [*sorted(self._folder.iterdir()), *self._leases.glob(f"{NOBODY}-*")]
        files = [(path.name, path.lstat().st_mtime_ns, path.lstat().st_uid, path.lstat().st_size) for path in paths]
        held = [one for one in read_held(self._leases) if one.job == JOB]
        return [files, held, read_process(self.pid).state != "Z"]
