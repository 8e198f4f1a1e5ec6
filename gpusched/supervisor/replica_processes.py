"""Which processes are a replica's."""

import os
from collections.abc import Mapping

from gpusched.linux.processes import below

__all__ = ["processes_of"]


def processes_of(replicas: Mapping[int, str]) -> list[tuple[int, str]]:
    """Return the pids of the replicas' processes, each with its replica: what is below it, or of its session.

    `replicas` are names, by the pid of the child of this process that each is.
    """
    names, found = dict(replicas), []
    for process in below(os.getpid()) if replicas else ():
        name = names.get(process.pid) or names.get(process.parent) or replicas.get(process.session)
        if name is not None:
            names[process.pid] = name
            found.append((process.pid, name))
    return found
