"""What frameworks have taken of a replica's devices, as its processes have left it (frameworks/recorder.py).

A job can write anything in that directory, so a file that is not one of these, in each respect, is no file.
"""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import msgspec

from gpusched.frameworks.recorder import MEMORY_DIRECTORY
from gpusched.linux.regular_files import read_regular

__all__ = ["FrameworkPeaks", "ReplicaPeaks", "read_peaks"]

_MOST_FILES: Final = 64
_MOST_FRAMEWORKS: Final = 4
_MOST_NAMES: Final = 100_000
_MOST_BYTES: Final = 16384

_Text = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,64}\Z")]
_Mib = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class FrameworkPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one framework has taken at any one time, in MiB, rounded up; None where it does not count it.

    `peak_mib` is what the program had allocated, `pool_mib` what the framework had taken of the devices for that. Of
    one process, it was recorded from `since` (Unix seconds) `until` then; None: the process has not ended in order.
    """

    framework: _Text
    version: _Text | None
    peak_mib: _Mib | None
    pool_mib: _Mib | None
    since: float = 0.0
    until: float | None = None


class ReplicaPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """What the `processes` of a replica that have started a device took at the most at one time, in MiB.

    Of each framework, and in all. Processes of which it is not known that they ran one after the other count as if they
    had run together. A sum of which a part is unknown is None.
    """

    processes: int
    peak_mib: int | None
    pool_mib: int | None
    frameworks: tuple[FrameworkPeaks, ...]


_DECODER: Final[msgspec.json.Decoder[list[FrameworkPeaks]]] = msgspec.json.Decoder(
    Annotated[list[FrameworkPeaks], msgspec.Meta(min_length=1, max_length=16)]
)


def read_peaks(run_dir: Path, replica: str, attempt: int) -> ReplicaPeaks | None:
    """Return what frameworks have taken in an attempt of a replica up to now; None if no process has left anything.

    Also None if more than 64 have: a sum of some would be too low. It raises nothing, and waits for nothing.
    """
    paths = list(islice(_paths(run_dir / MEMORY_DIRECTORY, f"{replica}.{attempt}."), _MOST_FILES + 1))
    found = [one for one in map(_read, paths) if one is not None]
    if not found or len(paths) > _MOST_FILES:
        return None
    merged: dict[tuple[str, str], list[FrameworkPeaks]] = defaultdict(list)
    for one in (one for each in found for one in each):
        merged[one.framework, one.version or ""].append(one)
    frameworks = tuple(
        msgspec.structs.replace(
            some[0],
            peak_mib=_most(some, lambda one: one.peak_mib),
            pool_mib=_most(some, lambda one: one.pool_mib),
        )
        for _, some in sorted(merged.items())
    )
    every = [one for each in found for one in each]
    return ReplicaPeaks(
        processes=len(found),
        peak_mib=_most(every, lambda one: one.peak_mib),
        pool_mib=_most(every, lambda one: one.pool_mib),
        frameworks=frameworks[:_MOST_FRAMEWORKS],
    )


def _paths(directory: Path, prefix: str) -> Iterator[Path]:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a zero byte
        return
    try:
        with os.scandir(descriptor) as entries:
            for entry in islice(entries, _MOST_NAMES):
                pid = entry.name.removeprefix(prefix).removesuffix(".json")
                if pid.isdecimal() and pid.isascii() and entry.name == f"{prefix}{pid}.json":
                    yield directory / entry.name
    except OSError:
        return
    finally:
        os.close(descriptor)


def _read(path: Path) -> list[FrameworkPeaks] | None:
    try:
        return _DECODER.decode(read_regular(path, _MOST_BYTES))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _most(some: Sequence[FrameworkPeaks], figure: Callable[[FrameworkPeaks], int | None]) -> int | None:
    """Return the largest sum of what ran at the same time: it is reached where one of them begins."""
    amounts = [(one.since, math.inf if one.until is None else one.until, figure(one)) for one in some]
    if any(amount is None for _, _, amount in amounts):
        return None
    return max(
        sum(amount or 0 for since, until, amount in amounts if since <= moment < until or since == moment)
        for moment, _, _ in amounts
    )
