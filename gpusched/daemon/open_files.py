"""How many files the daemon may have open: as many as the host lets it, for every peer is one.

ZeroMQ ends the whole process when it cannot let in one more (src/ipc_listener.cpp), and a shell's limit is often 1024.
What the daemon starts keeps the limit that the daemon was started with: select(2) knows no more than 1024.
"""

import resource
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gpusched.daemon.starter import Spawn
from gpusched.execution.directory import JobDirectory

__all__ = ["raise_limit", "under_limit"]

_MOST: Final = 1 << 20


def raise_limit() -> tuple[int, int]:
    """Let this process open as many files as it may; return the soft and the hard limit that it had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft, hard


def under_limit(limit: tuple[int, int], spawn: Spawn) -> Spawn:
    """Return `spawn` such that what it starts may open `limit` files."""

    def spawn_so(directory: JobDirectory, nonce: str, environ: Mapping[str, str]) -> int | None:
        pid = spawn(directory, nonce, environ)
        if pid is not None:
            with suppress(ProcessLookupError):  # it takes a while until a guard has started anything
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
        return pid

    return spawn_so
