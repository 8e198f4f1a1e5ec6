"""The files that a job's programs have left in its directory: its results. See Job.files and Job.open."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from gpusched.api.validation import require_type
from gpusched.errors import HostFault, NotFound
from gpusched.execution.removed import is_ours
from gpusched.linux.regular_files import open_beneath

if TYPE_CHECKING:
    from gpusched.api.handle import Job

__all__ = ["ResultFile", "files_in", "open_file", "result_files"]

_MOST: Final = 1000
_DEEPEST: Final = 4


class ResultFile(NamedTuple):
    """A file in a job's directory: its `name` there, such as "plots/a.png", its size, and when it changed (Unix s)."""

    name: str
    bytes: int
    changed: float


def result_files(job: "Job") -> list[ResultFile]:
    """Return the files as Job.files does."""
    return files_in(job.results)


def files_in(directory: Path) -> list[ResultFile]:
    """Return the same of the directory of a job's results, the latest first."""
    found = list(_beneath(str(directory), "", _DEEPEST, [_MOST]))
    return sorted(found, key=lambda file: -file.changed)


def open_file(job: "Job", name: str) -> BinaryIO:
    """Return an open file as Job.open does."""
    require_type(name, str, "name")
    if is_ours(name.partition("/")[0]):
        raise NotFound(f"{job.id} has no result {name!r}", "see Job.files()")
    try:
        return os.fdopen(open_beneath(job.results, name), "rb")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{job.id} has no result {name!r}", "see Job.files()") from None
    except OSError as error:
        raise HostFault(f"{job.results / name}: {error.strerror}", "make it a readable file") from None


def _beneath(directory: str, prefix: str, deepest: int, left: list[int]) -> Iterator[ResultFile]:
    """Yield the regular files of a directory, and of those in it; `left`: how many more entries are read."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                if not prefix and is_ours(entry.name):
                    continue
                if entry.is_file(follow_symlinks=False):
                    found = entry.stat(follow_symlinks=False)
                    yield ResultFile(prefix + entry.name, found.st_size, found.st_mtime)
                elif deepest > 1 and entry.is_dir(follow_symlinks=False):
                    yield from _beneath(entry.path, f"{prefix}{entry.name}/", deepest - 1, left)
    except OSError:  # it went meanwhile, or is not readable
        return
