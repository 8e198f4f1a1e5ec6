"""What each replica uses of the host, for how long it runs, and what its frameworks count themselves.

What the driver shows of its processes is the daemon's to find out (daemon/device_meter.py).
"""

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from gpusched.execution.framework_peaks import ReplicaPeaks, read_peaks
from gpusched.model.plan import Replica
from gpusched.model.usage import MOST_ATTEMPTS, Usage
from gpusched.supervisor.replica_processes import processes_of

__all__ = ["UsageMeter"]

_FIRST_S: Final = 5.0
_EVERY_S: Final = 60.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class _Run(msgspec.Struct, kw_only=True):
    """A replica that runs. `next`: when a sample is due; `cpu_s`: the most that one has shown of all its processes."""

    replica: str
    attempt: int
    share_mib: int
    began: float
    next: float
    cpu_s: float = 0.0
    host_mib: int | None = None
    peaks: ReplicaPeaks | None = None


class UsageMeter:
    """Samples the replicas that run. `due` is when, on the clock of `now`; None while none does.

    `kept` has the usage of the attempts that have ended, by replica.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.kept: dict[str, tuple[Usage, ...]] = {}
        self._runs: dict[int, _Run] = {}

    @property
    def due(self) -> float | None:
        """When the next sample is to be taken."""
        return min((run.next for run in self._runs.values()), default=None)

    def started(self, replica: Replica, pid: int, attempt: int, now: float) -> None:
        """Take in a process of this one that is a replica."""
        share = replica.share_mib + sum(further.share_mib for further in replica.further)
        self._runs[pid] = _Run(replica=replica.name, attempt=attempt, share_mib=share, began=now, next=now + _FIRST_S)

    def poll(self, now: float) -> bool:
        """Take the samples for which it is time; return whether there were such."""
        due = {pid: run.replica for pid, run in self._runs.items() if now >= run.next}
        if not due:
            return False
        kib, cpu_s = dict[str, int](), dict[str, float]()
        for pid, replica in processes_of(due):
            kib[replica] = kib.get(replica, 0) + _pss_kib(pid)
            cpu_s[replica] = cpu_s.get(replica, 0.0) + (_cpu_s(pid) or 0.0)
        for run in (self._runs[pid] for pid in due):
            run.next = now + _EVERY_S
            if kib.get(run.replica):
                run.host_mib = max(-(-kib[run.replica] // 1024), run.host_mib or 0)
            run.cpu_s = max(run.cpu_s, cpu_s.get(run.replica, 0.0))
            run.peaks = read_peaks(self._run_dir, run.replica, run.attempt)
        return True

    def ended(self, pid: int, cpu_s: float, now: float) -> None:
        """Keep what a replica has used whose process has ended."""
        run = self._runs.pop(pid, None)
        if run is not None:
            run.peaks = read_peaks(self._run_dir, run.replica, run.attempt)
            usage = _usage(run, cpu_s, now)
            self.kept[run.replica] = (*self.kept.get(run.replica, ()), usage)[-MOST_ATTEMPTS:]

    def lacked(self, replica: Replica) -> None:
        """Note that the attempt of a replica that ended last did so for want of its device's memory."""
        *before, last = self.kept[replica.name]
        self.kept[replica.name] = (*before, replace(last, lacked_mib=replica.limit_mib))

    def usage(self, now: float) -> dict[str, tuple[Usage, ...]]:
        """Return what all replicas have used until now, by name, of each the latest attempts."""
        found = dict(self.kept)
        for pid, run in self._runs.items():
            found[run.replica] = (*found.get(run.replica, ()), _usage(run, _cpu_s(pid) or 0.0, now))[-MOST_ATTEMPTS:]
        return found


def _usage(run: _Run, cpu_s: float, now: float) -> Usage:
    seconds, cpu_s = round(max(0.0, now - run.began), 3), round(max(cpu_s, run.cpu_s), 3)
    usage = Usage(attempt=run.attempt, seconds=seconds, share_mib=run.share_mib, cpu_s=cpu_s, host_mib=run.host_mib)
    if run.peaks is None:
        return usage
    return replace(
        usage,
        framework=" and ".join(one.framework for one in run.peaks.frameworks),
        framework_version=" and ".join(one.version or "?" for one in run.peaks.frameworks),
        peak_mib=run.peaks.peak_mib,
        pool_mib=run.peaks.pool_mib,
        processes=run.peaks.processes,
    )


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
