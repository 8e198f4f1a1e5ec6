"""What replicas use of devices, by what the driver shows at each poll. No I/O, no clock.

The memory is the most that a poll has shown: what a process took and gave back between two of them is not in it, unless
NVML's accounting is on. A framework's own peak is (execution/framework_peaks.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpusched.daemon.energy import Energy, EnergyMeter
from gpusched.model.device import DeviceProcess, Inventory
from gpusched.model.lease import Holder, Lease, holders
from gpusched.model.status import JobStatus, ReplicaStatus
from gpusched.model.usage import MOST_ATTEMPTS, DeviceUse, Usage

__all__ = ["DeviceMeter"]

_Run = tuple[str, int]  # a replica, and the number of its attempt
_NEARLY: Final = 98
"""Percent of the most memory that count as all of it."""

_STEADY_POLLS: Final = 2
"""This number of polls must have shown a process at its most before its context is believed."""

_LONGEST_S: Final = 60.0
"""The longest time that one reading stands for: the daemon may have been halted."""


class _Shown(NamedTuple):
    """What the driver shows of a replica: memory, the part of the time in which its kernels ran, energy.

    `mib` is the most that it has held, where the driver keeps account of that; `held_mib` what it holds just now.
    """

    mib: int | None
    held_mib: int | None
    sm_percent: float | None
    processes: int
    energy: Energy | None


class DeviceMeter:
    """The use of each attempt of the replicas of jobs that run, by the job's id."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[_Run, DeviceUse]] = {}
        self._sampled: dict[tuple[str, _Run], float] = {}
        self._models: dict[str, str] = {}
        self._energy = EnergyMeter()

    def load(self, job_id: str, known: Iterable[DeviceUse]) -> None:
        """Take in what an earlier daemon has seen of a job."""
        self._jobs.setdefault(job_id, {(one.replica, one.attempt): one for one in known})

    def sample(self, inventory: Inventory, leases: Sequence[Lease], jobs: Iterable[JobStatus], now: float) -> None:
        """Take in a reading of the devices. `leases` name all processes of the replicas, as of Overruns.check.

        `now` is in seconds of a clock that goes on evenly.
        """
        before_s, self._sampled = self._sampled, {}
        by_pid = holders(leases)
        shown = _shown(inventory, by_pid, self._energy.since_last(inventory, by_pid))
        self._models = {device.uuid: device.name for device in inventory.devices}
        for job in jobs:
            if job.simulated:
                continue
            seen = self._jobs.setdefault(job.id, {})
            for one in job.replicas:
                found = shown.get((None, job.run_dir, job.id, one.name))
                if one.pid is not None and found is not None:
                    run = one.name, attempt_of(job, one)
                    model = self._models.get(one.device_uuid or "")
                    before = seen.get(run) or _begun(seen, run, model, inventory.driver_version)
                    seen[run] = _with(before, found, min(now - before_s.get((job.id, run), now), _LONGEST_S))
                    self._sampled[job.id, run] = now

    def seen(self, job_id: str) -> tuple[DeviceUse, ...]:
        """Return what is known of a job, of each replica the latest attempts."""
        return tuple(use for _, use in sorted(self._jobs.get(job_id, {}).items()))

    def merged(self, status: JobStatus) -> JobStatus:
        """Return the status with what is known of its replicas' devices in their usage."""
        seen = self._jobs.get(status.id, {})
        if status.simulated or not status.replicas or not (seen or self._models):
            return status
        return replace(status, replicas=tuple(self._with_devices(one, seen) for one in status.replicas))

    def _with_devices(self, one: ReplicaStatus, seen: Mapping[_Run, DeviceUse]) -> ReplicaStatus:
        model = self._models.get(one.device_uuid or "")
        usage = (_with_device(usage, seen.get((one.name, usage.attempt)), model) for usage in one.usage)
        return replace(one, usage=tuple(usage))

    def forget(self, job_id: str) -> None:
        """Drop a job that is over."""
        self._jobs.pop(job_id, None)


def attempt_of(job: JobStatus, replica: ReplicaStatus) -> int:
    """Return the number of the attempt that a replica runs, as GPUSCHED_ATTEMPT has it."""
    return job.attempt + replica.restarts


def _begun(seen: dict[_Run, DeviceUse], run: _Run, model: str | None, driver: str | None) -> DeviceUse:
    """Return the use of an attempt that has just been seen, and drop those that are not shown any more."""
    replica, attempt = run
    for old in [one for one in seen if one[0] == replica and one[1] <= attempt - MOST_ATTEMPTS]:
        del seen[old]
    return DeviceUse(replica=replica, attempt=attempt, device=model, driver=driver)


def _with_device(usage: Usage, use: DeviceUse | None, model: str | None) -> Usage:
    """Return the usage with what was seen of devices; of an attempt that no poll has met, the model of its first."""
    if use is None:
        return replace(usage, device=usage.device or model)
    busy = round(100 * use.busy_s / use.watched_s, 1) if use.watched_s else None
    return replace(
        usage,
        device_mib=use.device_mib,
        device=use.device,
        driver=use.driver,
        sm_percent=busy,
        energy_j=None if use.energy_j is None else round(use.energy_j, 1),
        energy_attributed=use.energy_attributed,
        context_mib=_context_mib(usage, use),
    )


def _context_mib(usage: Usage, use: DeviceUse) -> int | None:
    """Return what the process took beside its framework's pool.

    Only of one process on one device, and where the memory had been the same for some time: a pool that grew after the
    last poll, or two processes of which only one has a framework that counts, would make it far too small or too large.
    """
    if use.device_mib is None or usage.pool_mib is None or usage.pool_mib > use.device_mib:
        return None
    alone = usage.processes == 1 and use.processes == 1
    return use.device_mib - usage.pool_mib or None if alone and use.polls >= _STEADY_POLLS else None


def _with(before: DeviceUse, found: _Shown, passed_s: float) -> DeviceUse:
    after = before
    most = -1 if before.device_mib is None else before.device_mib
    if found.mib is not None and found.mib > most:
        after = replace(after, device_mib=found.mib, polls=0 if found.mib * _NEARLY > most * 100 else before.polls)
    if found.held_mib is not None and found.held_mib * 100 >= max(most, found.mib or 0) * _NEARLY:
        after = replace(after, polls=after.polls + 1)
    after = replace(after, processes=max(before.processes, found.processes))
    if found.sm_percent is not None and passed_s:
        busy_s = before.busy_s + found.sm_percent / 100 * passed_s
        after = replace(after, busy_s=busy_s, watched_s=before.watched_s + passed_s)
    if found.energy is not None and passed_s:
        joules, attributed = found.energy
        after = replace(
            after,
            energy_j=(before.energy_j or 0.0) + joules,
            energy_attributed=before.energy_attributed or attributed,
        )
    return after


def _shown(
    inventory: Inventory, by_pid: Mapping[int, Lease], energies: Mapping[Holder | int, Energy]
) -> dict[Holder, _Shown]:
    """Return what is shown of each holder of a share, of all its processes on all its devices together."""
    parts: dict[Holder, list[tuple[str, DeviceProcess]]] = {}
    for device in inventory.devices:
        for process in device.processes:
            if (lease := by_pid.get(process.pid)) is not None:
                parts.setdefault(lease.holder, []).append((device.uuid, process))
    return {holder: _sum(found, energies.get(holder)) for holder, found in parts.items()}


def _sum(found: Sequence[tuple[str, DeviceProcess]], energy: Energy | None) -> _Shown:
    memory = [None if one.memory_mib is None else max(one.memory_mib, one.peak_mib or 0) for _, one in found]
    busy: dict[str, int] = {}
    for uuid, process in found:
        busy[uuid] = min(100, busy.get(uuid, 0) + (process.sm_percent or 0))
    unknown = any(process.sm_percent is None for _, process in found)
    return _Shown(
        mib=None if None in memory else sum(mib or 0 for mib in memory),
        held_mib=None if None in memory else sum(one.memory_mib or 0 for _, one in found),
        sm_percent=None if unknown else sum(busy.values()) / len(busy),
        processes=len(found),
        energy=energy,
    )
