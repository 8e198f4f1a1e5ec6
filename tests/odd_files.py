"""What a job can put in the place of a file of ours: everything that is no regular file, or none that fits."""

import errno
import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.patience import PATIENCE_S

T = TypeVar("T")

HUGE: Final = 10 << 30


def put(kind: str, path: Path) -> None:
    """Put something of that kind in the place of `path`, whatever is there."""
    if not path.parent.is_dir():
        path.parent.unlink(missing_ok=True)
        path.parent.mkdir(parents=True)
    while True:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        try:
            _MAKERS[kind](path)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.EADDRINUSE}:  # else whose file it is has just written it again
                raise
        else:
            return


def within(action: Callable[[], T]) -> T:
    """Return what `action` does, or raise what it raises; one that hangs fails the test, and not the whole run."""
    results: list[T] = []
    errors: list[BaseException] = []

    def act() -> None:
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001 (it is raised again below)
            errors.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]
    return results[0]


def _socket(path: Path) -> None:
    """A socket's path must be short, so it is named by its directory's descriptor."""
    descriptor = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{descriptor}/{path.name}")
    os.close(descriptor)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("no device can be made here")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def _locked(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0)


_MAKERS: Final[dict[str, Callable[[Path], object]]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": _device,
    "link": lambda path: path.symlink_to("/dev/zero"),
    "sparse": _sparse,
    "directory": Path.mkdir,
    "unreadable": _locked,
}
KINDS: Final = tuple(_MAKERS)
