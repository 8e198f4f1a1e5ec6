"""Where the output of replicas goes: a log for each, or the streams that an attached command was given.

It must not know states. What goes wrong with a log is reported and costs no replica.
"""

import contextlib
import datetime as dt
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from gpusched.execution.directory import JobDirectory
from gpusched.execution.log_cut import cut_log
from gpusched.execution.spec import Streams
from gpusched.linux.regular_files import append_regular, open_regular, read_tail

__all__ = ["Logs", "last_line"]

_TAIL_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 200
_ESCAPES: Final = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")  # ECMA-48, CSI: colours and the cursor


class Logs:
    """A log for each replica, for all its attempts. stdin is /dev/null. `report` gets what goes wrong.

    `trim` cuts the logs `names` that hold more than `cap` bytes, 0: none. `attached`: the streams that the job's one
    command gets instead. What it writes there is not seen here.
    """

    def __init__(
        self,
        directory: JobDirectory,
        report: Callable[[str], None],
        *,
        cap: int = 0,
        names: Iterable[str] = (),
        attached: Streams | None = None,
    ) -> None:
        self._directory, self._report, self._attached = directory, report, attached
        self._begins: dict[str, int] = {}
        self._cap, self._names = cap, list(names) if cap else []

    def streams(self, replica: str, attempt: int, unix: float) -> Streams:
        """Return the streams of a process that starts now; the caller closes them, each descriptor once.

        /dev/null, and twice the replica's log, with a line between the attempts, or where it cannot be had /dev/null.
        """
        if self._attached is not None:
            return self._attached
        when = dt.datetime.fromtimestamp(unix, dt.UTC)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        path = self._directory.log(replica)
        try:
            log = _open(path)
        except OSError as error:
            self._begins.pop(replica, None)
            self._report(f"the output of {replica} is lost: {path}: {error.strerror}")
            sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            return nothing, sink, sink
        try:
            os.write(log, f"--- {replica}, attempt {attempt}, {when:%Y-%m-%d %H:%M:%S} UTC ---\n".encode())
        except OSError as error:
            self._report(f"{path}: {error.strerror}")
        self._begins[replica] = os.fstat(log).st_size
        return nothing, log, log

    def write_line(self, replica: str, text: str) -> None:
        """Add a line of ours to the replica's log. Where a command has streams instead, they are its own."""
        if self._attached is not None:
            return
        with contextlib.suppress(OSError):  # it is in the supervisor's log as well
            append_regular(self._directory.log(replica), f"--- {replica}: {text} ---\n".encode())

    def tail(self, replica: str) -> bytes:
        """Return the last 64 KiB of the replica's log, nothing that an earlier attempt wrote among them."""
        begin = self._begins.get(replica)
        if begin is None:
            return b""
        try:
            return read_tail(self._directory.log(replica), _TAIL_BYTES, begin)
        except OSError:
            return b""

    def trim(self) -> None:
        """Cut the logs that have grown beyond the cap (log_cut.py); one that cannot be cut is left alone from then on.

        Of logs that never were too large it costs one call each, to see their sizes.
        """
        for name in list(self._names):
            path = self._directory.log(name)
            try:
                cut = cut_log(path, self._cap) if path.lstat().st_size > self._cap else None
            except FileNotFoundError:
                continue
            except OSError as error:
                self._names.remove(name)
                self._report(f"{path} is not cut, and grows: {error.strerror}")
                continue
            if cut is not None and cut.moved and name in self._begins:
                self._begins[name] = 0  # of an earlier attempt's lines some may be taken for the latest one's


def last_line(tail: bytes) -> str | None:
    """Return the last line with text in it of what a program wrote, printable and short; None if there is none."""
    for line in reversed(tail.splitlines()):
        text = _ESCAPES.sub(b"", line).decode(errors="replace").strip()
        if text and not text.startswith("--- "):  # as our own lines do
            shown = "".join(one if one.isprintable() else "?" for one in text)
            return shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]}..."
    return None


def _open(path: Path) -> int:
    descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.set_blocking(descriptor, True)  # a replica gets it, and may ask
    return descriptor
