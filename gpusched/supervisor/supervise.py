"""A supervisor is put together: what its runner needs of this host, for the job in a directory."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpusched.environment import modules_to_preload
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.relatives import outliving
from gpusched.execution.spec import JobSpec, Streams
from gpusched.leases.directory import give_back
from gpusched.linux.oom import OomKills, find_counter, read_counter
from gpusched.linux.processes import Process, become_subreaper
from gpusched.model.plan import ReplicaSpec
from gpusched.model.status import JobState
from gpusched.supervisor.attached_child import AttachedChild
from gpusched.supervisor.process import Children, Spawner
from gpusched.supervisor.recorder import BootClock
from gpusched.supervisor.runner import Effects, Runner
from gpusched.supervisor.wakeup import Wakeup
from gpusched.zygote.client import ZygoteClient
from gpusched.zygote.protocol import command_of

__all__ = ["supervise"]


def supervise(path: Path, guard: int, streams: Streams | None) -> JobState:
    """Run the job in the directory `path` to its end, as a child of the process `guard`. Raises HostFault.

    `streams` are those of an attached job's command, None for a job that is not attached.
    """
    become_subreaper()
    directory = JobDirectory(path)
    spec = directory.read_spec()
    counter = find_counter()
    preload = _preload(spec)
    spawner = _spawner(directory, spec, preload)
    wakeup = Wakeup(spec.launcher)
    if preload is not None:  # now that there are handlers: like a replica it inherits no signal that is ignored
        preload.start(os.environ, directory.tmp, _forkable(spec)[0].cwd, directory.log("zygote"))
    effects = Effects(
        spawner=spawner,
        wakeup=wakeup,
        clock=BootClock(),
        oom=OomKills(lambda: read_counter(counter)),
        environ=dict(os.environ),
        guard_gone=lambda: os.getppid() != guard,
        give_back=lambda replica: give_back(directory.path / "lease", replica),
        preload=preload,
        streams=streams,
    )
    return Runner(directory, spec, effects).run()


def _preload(spec: JobSpec) -> ZygoteClient | None:
    """Return what imports what all replicas need, if there is something, and a replica that a fork can stand for."""
    modules, forkable = modules_to_preload(spec.preload, os.environ), _forkable(spec)
    if spec.attached or not modules or not forkable:
        return None
    first = command_of(forkable[0].argv, sys.executable)
    return ZygoteClient(modules, safe_path=first is not None and first.safe_path)


def _forkable(spec: JobSpec) -> list[ReplicaSpec]:
    return [one for one in spec.replicas if command_of(one.argv, sys.executable)]


def _spawner(directory: JobDirectory, spec: JobSpec, preload: ZygoteClient | None) -> Spawner:
    """Return what starts the replicas. Made before there are handlers: it reads what signals do until then."""

    def spared() -> Callable[[Process], bool]:
        return outliving(str(directory.path))

    if not spec.attached:
        return Children(preload, spared)
    if spec.launcher is None:
        raise HostFault(f"{spec.id} is attached to no process: its spec names no launcher", "start the command again")
    return AttachedChild(spec.launcher.pid, spared)
