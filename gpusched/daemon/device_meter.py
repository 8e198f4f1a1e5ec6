"""What replicas use of devices, by what the driver shows at each poll. No I/O, no clock.

The memory is the most that a poll has shown: what a process took and gave back between two of them is not in it. A
framework's own peak is (execution/framework_peaks.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from gpusched.model.device import Inventory
from gpusched.model.lease import Holder, Lease, holders
from gpusched.model.status import JobStatus, ReplicaStatus
from gpusched.model.usage import DeviceUse, Usage

__all__ = ["DeviceMeter"]

_Run = tuple[str, int]  # a replica, and the number of its attempt
_MOST_KEPT: Final = 10


class DeviceMeter:
    """The use of each attempt of the replicas of jobs that run, by the job's id."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[_Run, DeviceUse]] = {}

    def load(self, job_id: str, known: Iterable[DeviceUse]) -> None:
        """Take in what an earlier daemon has seen of a job."""
        self._jobs.setdefault(job_id, {(one.replica, one.attempt): one for one in known})

    def sample(self, inventory: Inventory, leases: Sequence[Lease], jobs: Iterable[JobStatus]) -> None:
        """Take in a reading of the devices. `leases` name all processes of the replicas, as of Overruns.check."""
        used = _used(inventory, holders(leases))
        models = {device.uuid: device.name for device in inventory.devices}
        for job in jobs:
            if job.simulated:
                continue
            seen = self._jobs.setdefault(job.id, {})
            for one in job.replicas:
                mib = used.get((None, job.run_dir, job.id, one.name))
                if one.pid is not None and mib is not None:
                    run = one.name, attempt_of(job, one)
                    before = seen.get(run)
                    if before is None or mib > before.device_mib:
                        model = models.get(one.device_uuid or "")
                        seen[run] = DeviceUse(replica=one.name, attempt=run[1], device_mib=mib, device=model)

    def seen(self, job_id: str) -> tuple[DeviceUse, ...]:
        """Return what is known of a job, of each replica the latest attempts."""
        found: dict[str, list[DeviceUse]] = {}
        for _, use in sorted(self._jobs.get(job_id, {}).items()):
            found.setdefault(use.replica, []).append(use)
        return tuple(use for uses in found.values() for use in uses[-_MOST_KEPT:])

    def merged(self, status: JobStatus) -> JobStatus:
        """Return the status with what is known of its replicas' devices in their usage."""
        seen = self._jobs.get(status.id)
        if not seen:
            return status
        return replace(status, replicas=tuple(_with_devices(one, seen) for one in status.replicas))

    def forget(self, job_id: str) -> None:
        """Drop a job that is over."""
        self._jobs.pop(job_id, None)


def attempt_of(job: JobStatus, replica: ReplicaStatus) -> int:
    """Return the number of the attempt that a replica runs, as GPUSCHED_ATTEMPT has it."""
    return job.attempt + replica.restarts


def _with_devices(one: ReplicaStatus, seen: Mapping[_Run, DeviceUse]) -> ReplicaStatus:
    return replace(one, usage=tuple(_with_device(usage, seen.get((one.name, usage.attempt))) for usage in one.usage))


def _with_device(usage: Usage, use: DeviceUse | None) -> Usage:
    return usage if use is None else replace(usage, device_mib=use.device_mib, device=use.device)


def _used(inventory: Inventory, by_pid: Mapping[int, Lease]) -> dict[Holder, int]:
    """Return the memory on all devices of each holder of a share, in MiB; without those of whom some is unknown."""
    used: dict[Holder, int] = {}
    unknown: set[Holder] = set()
    for device in inventory.devices:
        for process in device.processes:
            lease = by_pid.get(process.pid)
            if lease is not None and process.memory_mib is None:
                unknown.add(lease.holder)
            elif lease is not None:
                used[lease.holder] = used.get(lease.holder, 0) + (process.memory_mib or 0)
    return {holder: mib for holder, mib in used.items() if holder not in unknown}
