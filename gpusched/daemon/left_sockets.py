"""The sockets of learners that were killed together with guard and supervisor: only the daemon can remove them."""

from contextlib import suppress
from typing import Final

from gpusched.daemon.state import DaemonState
from gpusched.execution.expand import job_socket
from gpusched.execution.learner_socket import remove_socket

__all__ = ["remove_left_sockets"]

_LOCK: Final = ".lock"


def remove_left_sockets(parts: DaemonState) -> None:
    """Remove the sockets of jobs that are over; one that a dying learner still holds stays until the next call.

    The runtime directory may be shared with other state directories, whose jobs of the same names have other sockets.
    """
    names: list[str] = []
    with suppress(OSError):
        names = [path.name for path in parts.settings.runtime_dir.iterdir()]
    for path in {parts.settings.runtime_dir / name.removesuffix(_LOCK) for name in names}:
        job_id = path.name.rpartition("-")[0]
        if job_id not in parts.book.known or job_id in parts.book.live:
            continue
        if path == job_socket(parts.settings, parts.settings.state_dir / "jobs" / job_id):
            remove_socket(path)
