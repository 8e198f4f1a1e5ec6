"""Which processes have loaded a framework without the import hook, so that no limit is in force in them.

A script that replaces PYTHONPATH, `env -i`, and Python's -E, -I and -S leave the hook out. A process is found by three
things together: its environment or its options leave the hook out, it has a framework's library mapped (proc(5)), and
it has not reported a limit, as a program does that calls gpusched.frameworks.limit_memory(). A program whose Python
runs no sitecustomize for another reason is not found.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpusched.environment import HOOK_DIRECTORY, skips_hook
from gpusched.execution.orders import OverrunOrder
from gpusched.execution.spec import JobSpec
from gpusched.frameworks import LIMITS_DIRECTORY
from gpusched.frameworks.registry import frameworks
from gpusched.supervisor.events import Ordered
from gpusched.supervisor.replica_processes import processes_of
from gpusched.supervisor.replica_run import ReplicaRun

__all__ = ["LimitWatch"]

_FIRST_S: Final = 1.0
_LONGEST_S: Final = 60.0


class LimitWatch:
    """Polls the processes of replicas: a second after a start, then ever more rarely, and once a minute at the least.

    `due` is when, on the clock of `now`; None while nothing runs that has a limit.
    """

    def __init__(self, run_dir: Path, spec: JobSpec) -> None:
        self._reports = run_dir / LIMITS_DIRECTORY
        self._limited = {one.replica.name for one in spec.replicas if one.replica.limit_mib}
        self._pause_s = _FIRST_S
        self._warnings: dict[str, str] = {}
        self.due: float | None = None

    def started(self, replica: str, now: float) -> None:
        """Poll soon if the replica has a limit."""
        if replica in self._limited:
            self._pause_s, self.due = _FIRST_S, now + _FIRST_S

    def poll(self, names: Mapping[int, str], runs: Mapping[str, ReplicaRun], now: float) -> list[Ordered]:
        """Return the warnings that are new, if it is time to poll; an empty message takes one back.

        `names` are the replicas that run, by the pid of the child of this process that each is.
        """
        if self.due is None or now < self.due:
            return []
        limited = {pid: name for pid, name in names.items() if name in self._limited}
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        self.due = now + self._pause_s if limited else None
        before, self._warnings = self._warnings, self._found(limited)
        events = []
        for name in before.keys() | self._warnings.keys():
            text, run = self._warnings.get(name, ""), runs[name]
            shown = run.warning or ""
            if run.pid is not None and text != shown and shown in ("", before.get(name)):  # others weigh more
                events.append(Ordered(order=OverrunOrder(replica=name, pid=run.pid, message=text), now=now))
        return events

    def _found(self, limited: Mapping[int, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for pid, name in processes_of(limited):
            framework = _unlimited(pid)
            if framework is not None and not os.path.lexists(self._reports / f"{pid}.{framework}"):
                what = f"process {pid} has loaded {framework} without the import hook"
                found.setdefault(name, f"{what}, and the memory limit is not in force there")
        return found


def _unlimited(pid: int) -> str | None:
    """Return the framework that a process has loaded whose environment or options leave out the hook."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        if _has_hook(Path(f"/proc/{pid}/environ").read_bytes()) and not skips_hook(argv):
            return None
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return None
    return next((one.name for one in frameworks() if any(library in maps for library in one.libraries)), None)


def _has_hook(environ: bytes) -> bool:
    variables = dict(entry.partition(b"=")[::2] for entry in environ.split(b"\0"))
    path = os.fsdecode(variables.get(b"PYTHONPATH", b"")).split(os.pathsep)
    return str(HOOK_DIRECTORY) in path and b"GPUSCHED_MEMORY_LIMIT_MIB" in variables
