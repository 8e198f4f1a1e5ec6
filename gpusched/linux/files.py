"""Files that matter are never half written, and what lies in directories of ours is not for others to read."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from gpusched.linux.regular_files import open_regular

__all__ = ["make_private", "overwrite_file", "remove_tree", "replace_file", "require_descriptors"]

_OF_A_LINK = 7
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

    For a last status on a full disk: a reader in just this moment may see half of it. Spaces fill what is left. Raises
    OSError.
    """
    with os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
        found = os.fstat(file.fileno())
        if len(content) > found.st_blocks * _BLOCK:
            return False
        file.write(content.ljust(found.st_size))
    return True


def replace_file(path: Path, content: bytes, *, synced: bool = True, mode: int = 0o600) -> os.stat_result:
    """Write `content` beside `path`, on disk if `synced`, and then put it in its place, with `mode`. Raises OSError.

    Returns the attributes of the new file.

    What a writer that was killed has left beside it goes, pipes and links too; a directory in its place, or there, is
    moved aside.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
    except IsADirectoryError:
        _move_aside(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        file.write(content)
        file.flush()
        if synced:
            os.fsync(descriptor)
        written = os.fstat(descriptor)
    try:
        temporary.replace(path)
    except IsADirectoryError:
        _move_aside(path)
        temporary.replace(path)
    return written


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, as far as that is allowed; or what else is in its place.

    shutil.rmtree alone opens what it is given, and waits if that is a pipe.
    """
    import shutil  # a reader starts sooner without it

    with suppress(OSError, RecursionError):  # of directories that are deep enough
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _move_aside(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.{os.urandom(4).hex()}"))


def require_descriptors() -> None:
    """Raise OSError (EMFILE, ENFILE) where fewer files can be opened now than a link takes: libzmq would abort.

    A context and its socket take seven (libzmq 4.3: two epolls, five eventfds and sockets).
    """
    spare: list[int] = []
    try:
        for _ in range(_OF_A_LINK):
            spare.append(os.open("/", os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 (those opened so far are closed)
    finally:
        for descriptor in spare:
            os.close(descriptor)
