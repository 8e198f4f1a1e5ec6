"""What a user writes once: roles, their commands and needs. Files are read in workload_file.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.units import parse_mib

__all__ = ["Devices", "Memory", "Restart", "RestartPolicy", "Role", "Setting", "Workload", "memory_asked"]

_AUTO: Final = "auto"

RestartPolicy = Literal["never", "on-signal", "on-failure", "always"]
Setting = bool | int | float | str
"""What one of a workload's own settings may be compared with."""

Devices = int | Literal["all"]
"""How many whole devices one replica gets; `all`: as many as are whole and the other roles leave, at least 1."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica of a role needs: at least `min_mib`; `share` (1/10 000 of one device) when it can be had.

    `max_mib`: where the job grows, it gets no more than this; None: whatever is left over.

    `unless` are settings of the workload's own, each with a value: while all of them have it, no device is needed.

    `first_mib`: where it is set, the minimum is what earlier runs are measured to need, and this is asked for until
    that is known; 0: nothing is, and the job is refused.
    """

    min_mib: int
    share: int | None = None
    max_mib: int | None = None
    unless: tuple[tuple[str, Setting], ...] = ()
    first_mib: int | None = None

    def under(self, settings: Mapping[str, object]) -> "Memory | None":
        """Return what is needed when the workload's settings are these, None for no device."""
        if self.unless and _hold(self.unless, settings):
            return None
        return replace(self, unless=())


def memory_asked(value: object, where: str) -> tuple[int, int | None]:
    """Return an amount of memory in MiB, and for `auto` what to ask for until enough is measured, else None.

    `auto:4GiB` is 4 GiB until then; `auto` alone is 0: nothing. `where` names it in errors. Raises UsageError.
    """
    if not isinstance(value, str) or not value.startswith(_AUTO):
        return parse_mib(value, where), None
    name, _, first = value.partition(":")
    if name != _AUTO:
        raise UsageError(f"{where}: {value!r} is no amount of memory", "write auto, auto:4GiB or 4GiB")
    mib = parse_mib(first, where) if value != _AUTO else 0
    return mib, mib


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """When a replica is started again after it ended: `max` restarts in a row at the most.

    on-signal: only if it was killed by a signal, and not if it ended by itself, whatever its exit code.
    """

    policy: RestartPolicy = "on-failure"
    max: int = 3


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process. Its replicas get `memory` on one device, or whole `devices`; with neither they get none.

    `threads` None: the plan decides, and gives `least_threads` or more if there are enough CPUs. `low_cpu`: another
    role computes what this one needs, so that it hardly uses a CPU. `when` are settings of the workload's own, each
    with a value: unless all of them have it, the job is without this role.
    """

    name: str
    command: tuple[str, ...]
    count: int = 1
    memory: Memory | None = None
    devices: Devices | None = None
    restart: Restart = Restart()
    threads: int | None = None
    least_threads: int = 1
    low_cpu: bool = False
    when: tuple[tuple[str, Setting], ...] = ()

    def under(self, settings: Mapping[str, object]) -> "Role | None":
        """Return the role as it is when the workload's settings are these, None if the job is then without it.

        One that loses its device is low_cpu.
        """
        if not _hold(self.when, settings):
            return None
        if self.memory is None:
            return replace(self, when=())
        memory = self.memory.under(settings)
        return replace(self, memory=memory, low_cpu=memory is None, when=())


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of roles. `leader`: the role whose end ends the job. `settings`: `module:Class` of its options.

    `preload` names the modules that are imported once for all replicas; a launch asks whether they are installed.
    `stop_grace_s` is how long a replica may take between SIGTERM and SIGKILL. `requeue`: a job of the daemon's that was
    lost, as by a reboot, is queued again. `engine`: what runs it by default, see engines/base.py. `listen`: its
    learner can take actors of other hosts; not while its settings are those of `listen_unless`, if there are any.
    `memory_options` are those of its settings on which it depends how much memory its roles use.
    """

    name: str
    roles: tuple[Role, ...]
    leader: str | None = None
    preload: tuple[str, ...] = ()
    settings: str | None = None
    stop_grace_s: float = 10.0
    requeue: bool = False
    engine: str | None = None
    listen: bool = True
    listen_unless: tuple[tuple[str, Setting], ...] = ()
    memory_options: tuple[str, ...] = ()
    path: Path | None = None

    def role(self, name: str) -> Role:
        """Return the role of that name. Raises KeyError if there is none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    @property
    def conditional(self) -> bool:
        """Whether its roles, or what they need, depend on its settings."""
        roles = any(role.when or (role.memory is not None and role.memory.unless) for role in self.roles)
        return roles or bool(self.listen_unless)

    def under(self, settings: Mapping[str, object]) -> "Workload":
        """Return the workload as it is when its settings are these: nothing in it depends on them any more."""
        listen = self.listen and not (self.listen_unless and _hold(self.listen_unless, settings))
        roles = tuple(there for role in self.roles if (there := role.under(settings)) is not None)
        return replace(self, roles=roles, listen=listen, listen_unless=())


def _hold(conditions: tuple[tuple[str, Setting], ...], settings: Mapping[str, object]) -> bool:
    """Return whether all settings that are named have the values that are given."""
    return all(name in settings and settings[name] == value for name, value in conditions)
