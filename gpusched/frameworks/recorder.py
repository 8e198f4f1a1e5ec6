"""Leaves what the frameworks have taken of their devices in this process in a file, for the supervisor.

The file is RUN_DIR/memory/REPLICA.ATTEMPT.PID.json: a list with an object for each framework, amounts in MiB, rounded
up. It is written at the end of the process (atexit), and from the start of a device on, since a process that is killed
runs nothing at its end: after a second, and then each time a quarter of its time has passed again, or a minute. It is a
record and no more: whatever goes wrong with it, the program runs on, ends when it ends, and prints nothing.

There is no thread before a framework has started a device: a process with threads is better not forked, and a zygote
is a process that forks. Nothing of a parent counts in a fork: the recorder is that of one pid.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from _thread import allocate_lock
from typing import TYPE_CHECKING

from gpusched.frameworks.peaks import Peaks

if TYPE_CHECKING:
    from gpusched.frameworks.registry import Framework

__all__ = ["MEMORY_DIRECTORY", "pause_s", "record_peaks"]

MEMORY_DIRECTORY = "memory"
"""In the run directory: a file for each process that has started a device."""

PAUSE_S = 60.0
"""The longest pause between two samples; tests make it shorter before a framework starts."""

_FIRST_PAUSE_S = 1.0
_PART_OF_ITS_TIME = 0.25

_LONGEST_WAIT_S = 0.005
"""How long the end of a process waits for a sample that is being taken; it takes less than a millisecond."""

_watched: set[str] = set()
_recorders: dict[int, Recorder] = {}


def record_peaks(framework: Framework) -> None:
    """Record the peaks of a framework that has been loaded, from the moment on at which it starts a device. No errors.

    In a process that is no replica nothing is recorded; a fork that starts a device has a file of its own.
    """

    def started() -> None:
        _started(framework)

    if framework.name not in _watched:
        _watched.add(framework.name)
        with contextlib.suppress(Exception):
            framework.when_started(started)


def pause_s(age: float) -> float:
    """Return how long to wait for the next sample, `age` seconds after the start of the device.

    What a process loses that is killed is a fifth of its time at most, or a second, and never more than PAUSE_S.
    """
    return min(PAUSE_S, max(_FIRST_PAUSE_S, age * _PART_OF_ITS_TIME))


def _started(framework: Framework) -> None:
    """Take `framework` into the record of this process. It is called within the start of a device: no errors."""
    with contextlib.suppress(Exception):
        path = _path()
        if path is not None:
            made = Recorder(path)
            recorder = _recorders.setdefault(made.pid, made)  # atomic: two frameworks may start in two threads
            recorder.add(framework)
            if recorder is made:
                recorder.start()


def _path() -> str | None:
    run_dir, replica, attempt = map(os.environ.get, ("GPUSCHED_RUN_DIR", "GPUSCHED_REPLICA", "GPUSCHED_ATTEMPT"))
    if not run_dir or not replica or os.sep in replica or not (attempt or "").isdigit():
        return None
    return os.path.join(run_dir, MEMORY_DIRECTORY, f"{replica}.{attempt}.{os.getpid()}.json")  # noqa: PTH118


class Recorder:
    """The frameworks that have started a device in this process, and the file with their peaks."""

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self._path, self._written, self._since = path, b"", round(time.time(), 3)
        self._frameworks: dict[str, Framework] = {}
        self._peaks: dict[str, Peaks] = {}
        self._sampling, self._ended = allocate_lock(), False

    def add(self, framework: Framework) -> None:
        """Sample `framework` from now on."""
        self._frameworks[framework.name] = framework

    def start(self) -> None:
        """Have the file written at the end of the process and now and then before. Raises RuntimeError, OSError."""
        atexit.register(self._end)
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            from multiprocessing.util import Finalize

            Finalize(None, self._end, exitpriority=0)  # forks of multiprocessing end without atexit
        self._start_thread()

    def _start_thread(self) -> None:
        """Start the thread that samples, with all signals blocked: those that the program waits for are not for it."""
        import signal
        import threading

        thread = threading.Thread(target=self._sample, name="gpusched-peaks", daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _sample(self) -> None:
        began = time.monotonic()
        while True:
            time.sleep(pause_s(time.monotonic() - began))
            if not self._sampling.acquire(blocking=False):  # the process ends
                return
            self._record()
            self._sampling.release()

    def _end(self) -> None:
        """Write the file for the last time. The lock is kept: the thread must not ask a framework that is going."""
        if os.getpid() != self.pid or self._ended:  # forks inherit what runs at the end
            return
        self._ended = True
        with contextlib.suppress(BaseException):  # a signal's, too: the process is ending already
            if self._sampling.acquire(timeout=_LONGEST_WAIT_S):
                self._record({"until": round(time.time(), 3)})

    def _record(self, more: dict[str, float] | None = None) -> None:
        with contextlib.suppress(Exception):
            import json

            entries = [entry for one in tuple(self._frameworks.values()) if (entry := self._entry(one)) is not None]
            content = json.dumps([{**entry, "since": self._since, **(more or {})} for entry in entries]).encode()
            if entries and content != self._written:
                _replace(self._path, content)
                self._written = content

    def _entry(self, framework: Framework) -> dict[str, str | int | None] | None:
        known = self._peaks.get(framework.name)
        with contextlib.suppress(Exception):
            found = framework.peaks()
            if found is not None:
                known = self._peaks[framework.name] = found if known is None else found.highest(known)
        if known is None:
            return None
        version = getattr(sys.modules.get(framework.name), "__version__", None)
        return {
            "framework": framework.name,
            "version": str(version)[:64] if version else None,
            "peak_mib": _mib(known.allocated),
            "pool_mib": _mib(known.pool),
        }


def _mib(amount: int | None) -> int | None:
    """Return bytes as MiB, rounded up."""
    return None if amount is None else -(-int(amount) >> 20)


def _replace(path: str, content: bytes) -> None:
    """Replace the file `path` whole, or leave the one that is there. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(path), 0o700)  # noqa: PTH102, PTH120 (pathlib is heavy)
    temporary = path + ".new"
    _remove(temporary)
    try:
        if _write(temporary, content):
            os.replace(temporary, path)  # noqa: PTH105
    finally:
        _remove(temporary)


def _write(path: str, content: bytes) -> bool:
    """Return whether the new file `path` has all of `content`: a disk may have room for a part. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        return os.write(descriptor, content) == len(content)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
