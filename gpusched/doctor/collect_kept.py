"""Collects what jobs take on the disk: a walk that ends after a second, however many there are."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpusched.doctor.facts import KeptFacts
from gpusched.execution.directory import GUARD_LOCK
from gpusched.execution.log_cut import HEAD, read_cut
from gpusched.execution.removed import REMOVED, RESULTS, is_ours
from gpusched.linux.file_locks import is_held
from gpusched.linux.regular_files import open_regular
from gpusched.settings import Settings

__all__ = ["OLD_DAYS", "kept_facts"]

OLD_DAYS: Final = 30
"""Jobs that ended more than these days ago are counted by themselves: the number in the examples of `prune`."""

_LONGEST_S: Final = 1.0
_BLOCK: Final = 512  # the unit of st_blocks (stat(2))
_MOST_NAMED: Final = 4
_DAY_S: Final = 86_400


class _OutOfTime(Exception):
    """The walk has taken a second."""


def kept_facts(settings: Settings) -> KeptFacts:
    """Return what the jobs of `settings` take; `whole` is False where there was no time for all of them."""
    walk = _Walk(settings.state_dir)
    whole = True
    try:
        walk.jobs()
        walk.others()
    except _OutOfTime:
        whole = False
    return KeptFacts(
        whole=whole,
        jobs=walk.count,
        logs_mib=walk.logs >> 20,
        results_mib=walk.results >> 20,
        kept_results_mib=walk.kept >> 20,
        undeleted_mib=walk.undeleted >> 20,
        old_jobs=walk.old,
        old_mib=walk.old_bytes >> 20,
        cut_logs=walk.cut_count,
        cut=tuple(walk.cut),
        log_cap_mib=settings.log_cap_mib,
        removes_jobs=settings.keep_jobs != (None, None),
        removes_logs=settings.keep_logs_s is not None,
        removed=str(settings.state_dir / REMOVED),
    )


class _Walk:
    """Sums of bytes, as far as the walk has come. No link is followed."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._deadline = time.monotonic() + _LONGEST_S
        self._old_before = time.time() - OLD_DAYS * _DAY_S
        self.count = self.logs = self.results = self.kept = self.undeleted = 0
        self.old = self.old_bytes = self.cut_count = 0
        self.cut: list[tuple[str, int]] = []

    def jobs(self) -> None:
        """Walk through the directories of all jobs. Raises _OutOfTime."""
        for job in self._entries(self._state_dir / "jobs"):
            if job.is_dir(follow_symlinks=False):
                self._job(job)

    def others(self) -> None:
        """Walk through what is left of removed jobs. Raises _OutOfTime."""
        for path in self._files(self._state_dir / RESULTS):
            self.kept += _room(path)
        for path in self._files(self._state_dir / REMOVED):
            self.undeleted += _room(path)

    def _job(self, job: "os.DirEntry[str]") -> None:
        self.count += 1
        before = self.logs + self.results
        for entry in self._entries(job.path):
            if entry.name == "logs":
                for log in self._files(entry.path):
                    self.logs += _room(log)
                    self._note_cut(job.name, log)
            elif is_ours(entry.name):
                self.logs += _room(entry)
            elif entry.is_dir(follow_symlinks=False):
                self.results += sum(map(_room, self._files(entry.path)))
            else:
                self.results += _room(entry)
        if self._is_old(job.path):
            self.old += 1
            self.old_bytes += self.logs + self.results - before

    def _is_old(self, job: str) -> bool:
        try:
            ended = os.lstat(f"{job}/status.json").st_mtime
        except OSError:
            return False
        return ended < self._old_before and not is_held(f"{job}/{GUARD_LOCK}")

    def _note_cut(self, job: str, log: "os.DirEntry[str]") -> None:
        with suppress(OSError):
            if log.stat(follow_symlinks=False).st_size <= HEAD:
                return
            descriptor = open_regular(log.path, os.O_RDONLY)
            try:
                cut = read_cut(descriptor)
            finally:
                os.close(descriptor)
            if cut is not None:
                self.cut_count += 1
                if len(self.cut) < _MOST_NAMED:
                    self.cut.append((f"{job}/{log.name.removesuffix('.log')}", cut.size >> 20))

    def _files(self, path: str | Path) -> "Iterator[os.DirEntry[str]]":
        """Yield all files below a directory. Raises _OutOfTime."""
        below = [os.fspath(path)]
        while below:
            for entry in self._entries(below.pop()):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                else:
                    yield entry

    def _entries(self, path: str | Path) -> "Iterator[os.DirEntry[str]]":
        """Yield what is in a directory, nothing if it cannot be read. Raises _OutOfTime."""
        if Path(path).is_symlink():
            return
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if time.monotonic() > self._deadline:
                    raise _OutOfTime
                yield entry


def _room(entry: "os.DirEntry[str]") -> int:
    """Return how many bytes of the disk a file takes: less than its size where it has holes."""
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except OSError:
        return 0
