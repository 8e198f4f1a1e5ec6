"""A file that matters is never half written: whoever reads it finds the old content or the new one, whole."""

import os
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, on disk, and then put it in its place; mode 0600. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
