"""What is left of removed jobs: directories until they are deleted, results that are kept, and the highest numbers."""

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpusched.linux.files import make_private, remove_tree, replace_file
from gpusched.linux.regular_files import read_regular
from gpusched.settings import Settings

__all__ = [
    "REMOVED",
    "RESULTS",
    "STILL_LIVES",
    "delete_removed",
    "is_ours",
    "keep_number",
    "kept_number",
    "make_own",
    "note_removed_logs",
    "removed_id",
    "removed_logs_note",
]

REMOVED: Final = "removed"
RESULTS: Final = "results"
_NUMBERS: Final = "numbers"
"""Directories of the state directory."""

STILL_LIVES: Final = "a process of it still lives"
"""Why a job stays for a moment after its end: its guard sees to it that nothing is left."""

_LOGS_REMOVED: Final = "logs.removed"
_OURS: Final = frozenset(
    (
        *("spec.json", "status.json", "events.jsonl", "orders.jsonl", "guard.lock", "lease", "environ", "logs"),
        *("ready", "limits", "memory", "tmp", "keys", "invitation.json", "joined.json", "frame.txt", "watched"),
        _LOGS_REMOVED,
    )
)
_KEYS_OF_A_START: Final = re.compile(r"keys\.\d+")
_MOVED: Final = re.compile(r".+\.\d{10,}")
_LONGEST: Final = 20
_LONGEST_NOTE: Final = 200


def is_ours(name: str) -> bool:
    """Return whether gpusched itself has this file in a job's directory; all else is results, and progress.jsonl."""
    bare = name.removeprefix(".")
    if name in _OURS or name.removesuffix(".tmp") in _OURS or _KEYS_OF_A_START.fullmatch(name):
        return True
    return name != bare and any(bare.startswith(f"{one}.") for one in _OURS)


def make_own(directory: Path) -> None:
    """Make a directory of this user. Raises OSError, also where a link or another user's directory is in its place."""
    make_private(directory)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(0, "a link, or another user's, is in its place: move it away", str(directory))


def delete_removed(settings: Settings) -> tuple[str, ...]:
    """Delete what was moved away of jobs that are no more; return the paths that are still there."""
    away = settings.state_dir / REMOVED
    left: list[str] = []
    with suppress(OSError):
        make_own(away)
        for name in os.listdir(away):  # noqa: PTH208 (names alone)
            if _MOVED.fullmatch(name):
                remove_tree(away / name)
                if os.path.lexists(away / name):
                    left.append(str(away / name))
    return tuple(left)


def removed_id(path: str) -> str:
    """Return the id of the job whose directory was moved to `path`."""
    return os.path.basename(path).rpartition(".")[0]  # noqa: PTH119


def note_removed_logs(job: Path) -> None:
    """Note in a job's directory that its logs are about to be removed. Raises OSError."""
    text = f"the daemon removed it on {time.strftime('%Y-%m-%d')}"
    replace_file(job / _LOGS_REMOVED, text.encode(), synced=False)


def removed_logs_note(job: Path) -> str | None:
    """Return when and by what the logs in a job's directory were removed, None if they were not."""
    if os.path.lexists(job / "logs"):
        return None
    try:
        text = read_regular(job / _LOGS_REMOVED, _LONGEST_NOTE).decode(errors="replace")
    except OSError:
        return None
    return "".join(one for one in text if one.isprintable())


def keep_number(state_dir: Path, job_id: str) -> None:
    """Note the number of a job that is about to be removed, so that its id is not used again. Raises OSError."""
    workload, _, number = job_id.rpartition("-")
    if number.isdecimal() and int(number) > kept_number(state_dir, workload):
        make_own(state_dir / _NUMBERS)
        replace_file(state_dir / _NUMBERS / workload, number.encode())


def kept_number(state_dir: Path, workload: str) -> int:
    """Return the highest number of the removed jobs of a workload, 0 if there is none."""
    try:
        text = read_regular(state_dir / _NUMBERS / workload, _LONGEST).decode()
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdecimal() and text.isascii() else 0
