"""Files that matter are never half written, and what lies in directories of ours is not for others to read."""

import os
from pathlib import Path

__all__ = ["make_private", "overwrite_file", "replace_file"]

_BLOCK = 512  # the unit of st_blocks (stat(2))


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user only; what is there stays as it is.

    The XDG Base Directory Specification wants that of the ones above too, and `mkdir -p` leaves them to the umask.
    Raises OSError.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileNotFoundError:
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)  # in /proc it still "does not exist", however often one tries
    except FileExistsError:
        if not directory.is_dir():
            raise


def overwrite_file(path: Path, content: bytes) -> bool:
    """Write text over that of a file, in the room that the disk gave it; return False if there is too little.

    For a last word on a full disk: a reader in just this moment may see half of it. Spaces fill what is left. Raises
    OSError.
    """
    with path.open("r+b") as file:
        found = os.fstat(file.fileno())
        if len(content) > found.st_blocks * _BLOCK:
            return False
        file.write(content.ljust(found.st_size))
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, on disk, and then put it in its place; mode 0600. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
