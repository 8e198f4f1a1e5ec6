"""Polls the devices: hardware trouble drains them; who takes too much memory, or does not use them, is reported."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from gpusched.daemon.drain import drain_the_ill
from gpusched.daemon.idle_jobs import IdleJobs
from gpusched.daemon.overrun import Overruns
from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault, NotFound
from gpusched.execution.lease_usage import current_leases
from gpusched.execution.orders import give
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.probe.nvml_events import NvmlEvents
from gpusched.storage.job_status import current_status

__all__ = ["DeviceMonitor"]

_LOG: Final = logging.getLogger(__name__)
_BUSY_S: Final = 5.0
_IDLE_S: Final = 30.0
_KEEP_EVERY_S: Final = 60.0
"""How often what was measured is kept for a daemon after this one."""


class DeviceMonitor:
    """Polls every five seconds while jobs use devices, every thirty otherwise, and when a device reports an event.

    Times are monotonic seconds.
    """

    def __init__(self, state: DaemonState, events: NvmlEvents) -> None:
        self._state, self._events = state, events
        self._overruns = Overruns(state.settings.overrun_grace_s, state.settings.overrun)
        self._idle_jobs = IdleJobs(state)
        self._next = self._next_with_jobs = self._next_kept = 0.0

    def due(self) -> float | None:
        """Return when to poll."""
        return self._next

    def poll(self, now: float) -> None:
        """Take in a reading that has finished, and check the devices if it is time."""
        self._state.devices.take(now)
        sooner = now >= self._next_with_jobs and self._has_started_jobs()
        if now < self._next and not sooner and not self._events.waiting():
            return
        inventory = self._state.devices.fresh(now, 1.0)
        if inventory is None:  # the reading that has begun wakes us
            self._next = self._next_with_jobs = now + 0.5
            return
        using = self._using()
        self._next, self._next_with_jobs = now + (_BUSY_S if using else _IDLE_S), now + _BUSY_S
        drain_the_ill(self._state, inventory, self._events.events())
        if inventory.devices and (using or any(device.processes for device in inventory.devices)):
            self._check_use(inventory, using, now)

    def _has_started_jobs(self) -> bool:
        return any(job.state in (JobState.STARTING, JobState.RUNNING) for job in self._state.jobs.live.values())

    def _using(self) -> list[JobStatus]:
        """Return the jobs that may use devices of this host."""
        found = []
        for job in self._state.jobs.live.values():
            status = current_status(job)
            if status is not None and status.state not in JOB_TERMINAL and not status.simulated:
                found += [status] if any(one.device_uuid for one in status.replicas) else []
        return found

    def _check_use(self, inventory: Inventory, using: list[JobStatus], now: float) -> None:
        try:
            leases = current_leases(self._state.leases(simulated=False), inventory, lambda _: self._state.jobs.held())
        except HostFault as error:
            self._state.problems["leases"] = str(error)
            return
        self._state.problems.pop("leases", None)
        self._measure(inventory, leases, using, now)
        by_id = {job.id: job for job in using}
        for job_id, order in self._overruns.check(inventory, leases, using, now):
            if order.message:
                _LOG.warning("%s: %s %s", job_id, order.replica, order.message)
            with contextlib.suppress(NotFound, HostFault):
                give(by_id[job_id], order)

    def _measure(self, inventory: Inventory, leases: Sequence[Lease], using: list[JobStatus], now: float) -> None:
        """Take in what replicas use of devices, and have it saved once a minute."""
        self._state.meter.sample(inventory, leases, using, now)
        self._state.idleness.sample(inventory, leases, using, now)
        self._idle_jobs.check(using)
        if now >= self._next_kept:
            self._next_kept = now + _KEEP_EVERY_S
            self.keep()

    def keep(self) -> None:
        """Have what was measured saved."""
        for job in tuple(self._state.jobs.live.values()):
            seen, quiet = self._state.meter.seen(job.id), self._state.idleness.quiet(job.id)
            if (seen, quiet) != (job.measured, job.quiet):
                self._state.jobs.change(replace(job, measured=seen, quiet=quiet))
