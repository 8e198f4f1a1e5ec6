"""Which jobs, and which processes of others, hold devices and do nothing with them, by each reading. No I/O, no clock.

A job is idle if nothing of it runs on any device, and it holds one. What it uses is what the driver reports of all its
processes; else that of the device, if no other process is on it, or if nothing at all runs there. Memory shows nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpusched.daemon.device_meter import attempt_of
from gpusched.daemon.quiet_time import Seen, idle_s, observed
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.idle import Quiet
from gpusched.model.lease import Lease, holders
from gpusched.model.status import REPLICA_TERMINAL, JobState, JobStatus, ReplicaState, ReplicaStatus

__all__ = ["Idleness"]

_BUSY: Final = 0.05
"""A process that takes more of a CPU works; a notebook or a server that waits takes some hundredths."""

_LEAST_S: Final = 50.0
"""The supervisor samples all processes of a replica once a minute; its own is known at any time."""

_Process = tuple[str, int]  # the device's uuid and the pid
_Owner = tuple[str | None, str, str]  # a job, as its leases name it: the user, the directory, the id


class _Cpu:
    """How busy the processes of one job's replicas keep a CPU, by their usage in the job's status."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], tuple[float, float]] = {}
        self._busy: dict[tuple[str, int], bool] = {}

    def is_busy(self, job: JobStatus) -> bool:
        """Take in the job's usage; return whether one of its replicas was busy when that was last measured."""
        current = {}
        for one in job.replicas:
            if one.usage and one.pid is not None and one.usage[-1].cpu_s is not None:
                usage = one.usage[-1]
                current[one.name, usage.attempt] = usage.seconds, usage.cpu_s or 0.0
        for run, (seconds, cpu_s) in current.items():
            before_s, before_cpu_s = self._marks.get(run, (seconds, cpu_s))
            if seconds - before_s >= _LEAST_S:
                self._busy[run] = cpu_s - before_cpu_s >= _BUSY * (seconds - before_s)
                self._marks[run] = seconds, cpu_s
            else:
                self._marks.setdefault(run, (seconds, cpu_s))
        for gone in self._marks.keys() - current.keys():
            del self._marks[gone]
            self._busy.pop(gone, None)
        return any(self._busy.values())


class Idleness:
    """Remembers for how long nothing has run on the devices of each job, and for each process of no job.

    `after_s` is how long that may be, in seconds; whose kernels run in less than `below` % of the time does nothing.
    """

    def __init__(self, after_s: float, below: float) -> None:
        self._after_s, self._below = after_s, below
        self._jobs: dict[str, Quiet] = {}
        self._cpu: dict[str, _Cpu] = {}
        self._others: dict[_Process, Quiet] = {}

    def load(self, job_id: str, known: Quiet | None) -> None:
        """Take in what an earlier daemon has seen of a job."""
        if known is not None:
            self._jobs.setdefault(job_id, known)

    def sample(self, inventory: Inventory, leases: Sequence[Lease], jobs: Iterable[JobStatus], now: float) -> None:
        """Take in a reading of the devices. `leases` name all processes of the replicas, as of Overruns.check.

        `now` is in seconds of a clock that goes on evenly, since the host was booted.
        """
        by_pid = holders(leases)
        own: dict[_Owner, dict[str, list[DeviceProcess]]] = {}
        for device in inventory.devices:
            for process in device.processes:
                if (lease := by_pid.get(process.pid)) is not None:
                    own.setdefault(lease.holder[:-1], {}).setdefault(device.uuid, []).append(process)
        devices = {device.uuid: device for device in inventory.devices}
        for job in jobs:
            if job.simulated or job.state is JobState.STOPPING:
                continue
            holding = [one for one in job.replicas if one.device_uuid and one.state not in REPLICA_TERMINAL]
            if not holding:  # what it had was given back
                self.forget(job.id)
                continue
            processes = own.get((None, job.run_dir, job.id), {})
            used = self._used(holding, processes, devices, by_pid)
            loads = self._cpu.setdefault(job.id, _Cpu()).is_busy(job)
            starts = sum(attempt_of(job, one) for one in job.replicas)
            self._jobs[job.id] = observed(self._jobs.get(job.id), starts, Seen(used, loads), now, self._after_s)
        self._sample_others(inventory, by_pid, now)

    def quiet(self, job_id: str) -> Quiet | None:
        """Return what is known of a job, for a daemon after this one."""
        return self._jobs.get(job_id)

    def idle_s(self, job_id: str, after_s: float | None = None) -> float | None:
        """Return for how many seconds a job is idle, None if it is not; `after_s`: from when on this job is."""
        quiet = self._jobs.get(job_id)
        return None if quiet is None else idle_s(quiet, self._after_s if after_s is None else after_s)

    def others(self) -> dict[_Process, float]:
        """Return the processes of no job that are idle, each with the seconds for which it is."""
        found = {process: idle_s(quiet, self._after_s) for process, quiet in self._others.items()}
        return {process: seconds for process, seconds in found.items() if seconds is not None}

    def forget(self, job_id: str) -> None:
        """Drop a job that is over, or begins again."""
        self._jobs.pop(job_id, None)
        self._cpu.pop(job_id, None)

    def _used(
        self,
        holding: Sequence[ReplicaStatus],
        processes: Mapping[str, Sequence[DeviceProcess]],
        devices: Mapping[str, Device],
        by_pid: Mapping[int, Lease],
    ) -> bool | None:
        """Return whether a job uses a device, one that it holds or another one. `processes`: all of its, by device."""
        held = {uuid for one in holding for uuid in (one.device_uuid, *(share.device_uuid for share in one.further))}
        uses = [
            self._is_used(devices.get(uuid), processes.get(uuid, ()), by_pid)
            for uuid in held | processes.keys()
            if uuid is not None
        ]
        begins = any(one.state is not ReplicaState.RUNNING for one in holding)
        return True if True in uses else None if None in uses or begins else False

    def _is_used(self, device: Device | None, own: Sequence[DeviceProcess], by_pid: Mapping[int, Lease]) -> bool | None:
        """Return whether these processes use a device, where `own` are all of a job's on it; None: not known."""
        if device is None:
            return None
        known = [process.sm_percent for process in own if process.sm_percent is not None]
        if sum(known) >= self._below:
            return True
        if own and len(known) == len(own):
            return False
        if not own and device.processes and all(_is_anothers(process, by_pid) for process in device.processes):
            return False
        percent = device.utilization_percent
        if percent is not None and percent < self._below:
            return False
        return None if percent is None or len(own) < len(device.processes) else True

    def _sample_others(self, inventory: Inventory, by_pid: Mapping[int, Lease], now: float) -> None:
        """Take in the processes that compute, hold memory and belong to no job."""
        before, self._others = self._others, {}
        for device in inventory.devices:
            for process in device.processes:
                if process.pid not in by_pid and "C" in process.kind and process.memory_mib != 0:
                    key = device.uuid, process.pid
                    used = self._is_used(device, (process,), by_pid)
                    self._others[key] = observed(before.get(key), 0, Seen(used), now, self._after_s)


def _is_anothers(process: DeviceProcess, by_pid: Mapping[int, Lease]) -> bool:
    """Return whether a process is known to be of a job, and it is known how much it uses the device."""
    return process.pid in by_pid and process.sm_percent is not None
