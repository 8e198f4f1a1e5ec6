"""Secrets in files that only this user may read: of who reads /metrics, and the address of the next login."""

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault, UsageError
from gpusched.linux.files import replace_file

__all__ = ["kept_secret", "write_address"]

_BYTES: Final = 32
_LEAST: Final = 16
_MOST: Final = 1024


def kept_secret(path: str | None) -> str | None:
    """Return the secret in that file, which is made if it is not there; None without a file.

    Raises UsageError for a file that others may read or that holds no secret, HostFault if it cannot be read or made.
    """
    if path is None:
        return None
    try:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return _made(Path(path))
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise UsageError(f"{path}: others may read it, or it is no file", f"chmod 600 {path}")
            secret = file.read(_MOST + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise HostFault(
            f"{path}: {error.strerror}", "name a file that can be read, or one in a directory of yours"
        ) from None
    if not _LEAST <= len(secret) <= _MOST or not secret.isprintable() or " " in secret:
        raise UsageError(
            f"{path}: it holds no secret of {_LEAST} letters or more", "remove it, and another one is made"
        )
    return secret


def write_address(path: str, address: str) -> None:
    """Replace the file `path` by the address to open, for this user alone (0600). Raises HostFault."""
    try:
        replace_file(Path(path), f"{address}\n".encode(), synced=False)
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "name a file in a directory of yours") from None


def _made(path: Path) -> str:
    secret = secrets.token_urlsafe(_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{secret}\n")
    return secret
