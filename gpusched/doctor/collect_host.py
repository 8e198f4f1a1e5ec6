"""Collects facts of the operating system: limits and directories."""

import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpusched.doctor.facts import HostFacts, Place, PlaceFacts
from gpusched.errors import GpuschedError
from gpusched.settings import Settings

__all__ = ["host_facts", "place_facts"]

_CGROUPS: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60  # version 1 has a number near 2^63 for no limit


def host_facts() -> HostFacts:
    """Return the limits of this host, as they are for this process. Raises OSError."""
    memory, threads = _cgroup()
    files, files_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HostFacts(
        memory_limit_mib=None if memory is None else memory >> 20,
        threads_limit=threads,
        open_files=_finite(files),
        open_files_hard=_finite(files_hard),
        processes=None if os.getuid() == 0 else _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
    )


def place_facts(settings: Settings) -> PlaceFacts:
    """Return the directories of `settings`. Raises OSError."""
    from gpusched.control.place import control_socket

    problem = None
    try:
        control_socket(settings)
    except GpuschedError as error:
        problem = error.message
    return PlaceFacts(
        user=os.getuid(),
        state=_place(settings.state_dir),
        runtime=_place(settings.runtime_dir),
        leases=_place(settings.lease_dir),
        control_problem=problem,
    )


def _place(path: Path) -> Place:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    about, room = there.stat(), os.statvfs(there)
    exists = there == path
    return Place(
        path=str(path),
        mode=about.st_mode if exists else None,
        owner=about.st_uid if exists else None,
        writable=os.access(there, os.W_OK | os.X_OK),
        free_mib=room.f_bavail * room.f_frsize >> 20,
        filesystem=_filesystem(there),
    )


def _filesystem(path: Path) -> str:
    """Return the kind of file system that `path` is on, such as ext4 or nfs4."""
    import psutil

    real = Path(os.path.realpath(path))
    mounts = [mount for mount in psutil.disk_partitions(all=True) if real.is_relative_to(mount.mountpoint)]
    return max(reversed(mounts), key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def _cgroup() -> tuple[int | None, int | None]:
    """Return the least limits of control groups, of memory in bytes and of threads, from here up."""
    try:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None, None
    paths = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
    if (_CGROUPS / "cgroup.controllers").exists():
        here = paths.get("", "/")
        return _least(_CGROUPS, here, "memory.max"), _least(_CGROUPS, here, "pids.max")
    memory = _least(_CGROUPS / "memory", paths.get("memory", "/"), "memory.limit_in_bytes")
    return memory, _least(_CGROUPS / "pids", paths.get("pids", "/"), "pids.max")


def _least(root: Path, path: str, name: str) -> int | None:
    """Return the least number in the files `name` from `path` up to the root; "max" and what is missing is no limit."""
    return min(_numbers(root / path.lstrip("/"), root, name), default=None)


def _numbers(folder: Path, root: Path, name: str) -> Iterable[int]:
    for each in (folder, *folder.parents):
        try:
            number = int((each / name).read_text())
        except (OSError, ValueError):
            number = _UNLIMITED
        if number < _UNLIMITED:
            yield number
        if each == root:
            return
