"""What each replica uses of the host, and for how long it runs; what it uses of devices is the daemon's to find out."""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from gpusched.model.usage import Usage
from gpusched.supervisor.replica_processes import processes_of

__all__ = ["UsageMeter"]

_FIRST_S: Final = 5.0
_EVERY_S: Final = 60.0
_MOST_KEPT: Final = 10
"""Attempts of one replica of which the usage is kept, the latest."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class _Run(msgspec.Struct, kw_only=True):
    replica: str
    attempt: int
    began: float
    host_mib: int | None = None


class UsageMeter:
    """Samples the memory of the replicas that run. `due` is when, on the clock of `now`; None while none does.

    `kept` has the usage of the attempts that have ended, by replica.
    """

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Usage, ...]] = {}
        self.due: float | None = None
        self._runs: dict[int, _Run] = {}

    def started(self, replica: str, pid: int, attempt: int, now: float) -> None:
        """Take in a process of this one that is a replica."""
        self._runs[pid] = _Run(replica=replica, attempt=attempt, began=now)
        self.due = now + _FIRST_S if self.due is None else min(self.due, now + _FIRST_S)

    def poll(self, now: float) -> bool:
        """Take a sample if it is time; return whether it was."""
        if self.due is None or now < self.due:
            return False
        self.due = now + _EVERY_S if self._runs else None
        memory = _memory(self._runs)
        for run in self._runs.values():
            if run.replica in memory:
                run.host_mib = max(memory[run.replica], run.host_mib or 0)
        return bool(self._runs)

    def ended(self, pid: int, cpu_s: float, now: float) -> None:
        """Keep what a replica has used whose process has ended."""
        run = self._runs.pop(pid, None)
        if run is not None:
            usage = _usage(run, cpu_s, now)
            self.kept[run.replica] = (*self.kept.get(run.replica, ()), usage)[-_MOST_KEPT:]

    def usage(self, now: float) -> dict[str, tuple[Usage, ...]]:
        """Return what all replicas have used until now, by name, of each the latest attempts."""
        found = dict(self.kept)
        for pid, run in self._runs.items():
            found[run.replica] = (*found.get(run.replica, ()), _usage(run, _cpu_s(pid), now))[-_MOST_KEPT:]
        return found


def _usage(run: _Run, cpu_s: float | None, now: float) -> Usage:
    seconds, cpu_s = round(max(0.0, now - run.began), 3), None if cpu_s is None else round(cpu_s, 3)
    return Usage(attempt=run.attempt, seconds=seconds, cpu_s=cpu_s, host_mib=run.host_mib)


def _memory(runs: Mapping[int, _Run]) -> dict[str, int]:
    """Return the memory of the replicas in MiB, by name."""
    kib: dict[str, int] = {}
    for pid, replica in processes_of({pid: run.replica for pid, run in runs.items()}):
        kib[replica] = kib.get(replica, 0) + _pss_kib(pid)
    return {replica: -(-each // 1024) for replica, each in kib.items() if each}


def _pss_kib(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            line = next((line for line in file if line.startswith(b"Pss:")), b"Pss: 0 kB")
    except OSError:  # it has ended, or is another user's by now
        return 0
    return int(line.split()[1])


def _cpu_s(pid: int) -> float | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return sum(map(int, fields[11:15])) / _TICKS  # utime, stime, and those of children that were waited for (proc(5))
