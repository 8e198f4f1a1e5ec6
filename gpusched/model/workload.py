"""What a user writes once: roles, their commands and needs. Reading a file is somebody else's work."""

from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["Memory", "Restart", "RestartPolicy", "Role", "Workload"]

RestartPolicy = Literal["never", "on-failure", "always"]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica of a role needs: at least `min_mib`; `share` (1/10 000 of one device) when it can be had."""

    min_mib: int
    share: int | None = None


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """When a replica is started again after it ended: `max` restarts in a row at the most."""

    policy: RestartPolicy = "on-failure"
    max: int = 3


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process. `memory` None: its replicas get no device. `threads` None: the plan decides."""

    name: str
    command: tuple[str, ...]
    count: int = 1
    memory: Memory | None = None
    restart: Restart = Restart()
    threads: int | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of roles. `leader`: the role whose end ends the job. `settings`: `module:Class` of its options.

    `preload` names the modules that the replicas import first: a launch asks whether they are installed. `stop_grace_s`
    is how long a replica may take between SIGTERM and SIGKILL. `requeue`: a job of the daemon's that was lost, as by a
    reboot, is queued again.
    """

    name: str
    roles: tuple[Role, ...]
    leader: str | None = None
    preload: tuple[str, ...] = ()
    settings: str | None = None
    stop_grace_s: float = 10.0
    requeue: bool = False
    path: Path | None = None

    def role(self, name: str) -> Role:
        """Return the role of that name. Raises KeyError if there is none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)
