"""What a job's leader reports: lines of JSON in progress.jsonl, and in frame.txt a game that it draws while watched."""

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.linux.regular_files import open_regular, read_from, read_tail, tail_lines

__all__ = [
    "FRAME",
    "NewReports",
    "Report",
    "first_reports",
    "last_progress",
    "last_reports",
    "parse_report",
    "read_frame",
    "watch",
]

FRAME: Final = "frame.txt"
_WATCHED: Final = "watched"
"""A file in the job's directory: a person has watched in the last minute, so that frames are worth drawing."""

_MOST_REPORTED: Final = 1 << 22  # bytes of reports between two reads
_MOST_FRAME: Final = 1 << 16
_LITTLE: Final = 1 << 12
_FEW: Final = 32

Report = Mapping[str, object]
"""One report: `time` in Unix seconds, and what the leader gave: `step`, `steps_per_s`, `score`, `note` and others."""


def watch(run_dir: Path) -> None:
    """Note that a person watches the job in that directory now. Where that cannot be noted no game is drawn."""
    with suppress(OSError):
        descriptor = open_regular(run_dir / _WATCHED, os.O_WRONLY | os.O_CREAT)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)


class NewReports:
    """The reports of the progress file `path` from its beginning on, each once."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def read(self) -> list[Report]:
        """Return what has been reported since the last call; a line still being written waits."""
        try:
            chunk, begin = read_from(self._path, self._position, _MOST_REPORTED)
        except OSError:
            return []
        whole = len(chunk) if len(chunk) == _MOST_REPORTED and b"\n" not in chunk else chunk.rfind(b"\n") + 1
        self._position = begin + whole
        return [report for line in chunk[:whole].split(b"\n") if (report := parse_report(line)) is not None]


def last_progress(path: Path) -> dict[str, object] | None:
    """Return the last whole JSON object of the progress file `path`, or None: no file, or none in its last 64 KiB."""
    whole = [line for line in tail_lines(path) if line.endswith(b"\n")]
    return next((report for line in reversed(whole) if (report := parse_report(line)) is not None), None)


def first_reports(path: Path) -> list[Report]:
    """Return the reports at the beginning of a progress file, as far as 4 KiB reach; none if it cannot be read."""
    try:
        return _reports(read_from(path, 0, _LITTLE)[0].splitlines(keepends=True)[:_FEW])
    except OSError:
        return []


def last_reports(path: Path) -> list[Report]:
    """Return the reports at the end of a progress file, oldest first: 32 lines and 64 KiB at the most."""
    return _reports(tail_lines(path)[-_FEW:])


def _reports(lines: list[bytes]) -> list[Report]:
    return [report for line in lines if line.endswith(b"\n") and (report := parse_report(line)) is not None]


def parse_report(line: bytes) -> dict[str, object] | None:
    """Return the JSON object that a line of a progress file holds, NaN and infinity as None.

    None if it holds none, or one that cannot be sent on, such as with half a surrogate pair or a number over 64 bits.
    """
    import json

    try:
        report = json.loads(line, parse_constant=lambda _: None, parse_float=_finite)
        msgspec.msgpack.encode(report)
    except (ValueError, RecursionError, OverflowError):
        return None
    return report if isinstance(report, dict) else None


def read_frame(job: Path) -> str:
    """Return the game that a learner has drawn last in the job's directory; an empty text where it draws none."""
    try:
        return read_tail(job / FRAME, _MOST_FRAME).decode(errors="replace")
    except OSError:
        return ""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
