"""The daemon that a job has started, and that must outlive it: whoever ends what is left of a job leaves it alone.

A command inside a job starts the daemon where none runs. It is below the job's supervisor then, and so are the jobs
that it starts. The guard imports this module, so it needs nothing but what the interpreter brings.
"""

import os

from gpusched.filelock import held

__all__ = ["daemon_of"]

_MODULE = b"gpusched.daemon"


def daemon_of(directory: str) -> int | None:
    """Return the pid of the daemon to whose state directory a job's `directory` belongs; None if there is none."""
    path = f"{directory}/../../daemon.lock"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            pid = int(os.read(descriptor, 20)) if held(descriptor, 0, 1) else 0
        finally:
            os.close(descriptor)
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 (pathlib is heavy)
            return pid if _MODULE in file.read().split(b"\0") else None
    except (OSError, ValueError):
        return None
