"""The host as Python code sees it: one moment of its devices, the jobs, and who uses what."""

import os
from collections.abc import Callable
from typing import Self

import msgspec

from gpusched.api.validation import require_type
from gpusched.execution.snapshot import Snapshot, reader_of
from gpusched.settings import machine_typed, queue_settings

__all__ = ["Status", "StatusReader", "queue_watch", "status"]


class Status(Snapshot, frozen=True, kw_only=True):
    """One moment of a host: `inventory`, `jobs`, `leases`, and `holders`, the lease of each process by its pid."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Return the same moment as a value that prints."""
        return cls(**msgspec.structs.asdict(snapshot))

    def document(self) -> dict[str, object]:
        """Return the JSON of `status --json` (docs/reference.md), ready for json.dumps; saved, a plan's `machine`."""
        from gpusched.probe.saved import document_of

        found = document_of(self.inventory, self.leases)
        jobs = [msgspec.to_builtins(job) for job in self.jobs]
        return found | {"time": self.time, "jobs": jobs, "queue_problem": self.queue_problem}

    def __repr__(self) -> str:
        from gpusched.render.status import status_text

        return status_text(self)

    def _repr_html_(self) -> str:
        from gpusched.render.html import status_html

        return status_html(self)


def status(machine: str | None = None) -> Status:
    """Return this moment of the host: its devices, the jobs, and which job's lease each process uses.

    `machine`: a described machine or a file that `status --json` saved. Raises UsageError and HostFault.
    """
    return StatusReader(machine)()


def queue_watch() -> Callable[[], object]:
    """Return what gives a value that differs after each change of the queue, in microseconds; the daemon is not asked.

    It is for who shows the status: a reading soon after a change, and few while nothing happens.
    """
    from gpusched.execution.listing import queue_stamp

    settings = queue_settings(os.environ)
    return lambda: queue_stamp(settings)


class StatusReader:
    """Reads the status again and again, and keeps the driver's library open meanwhile. Raises as `status`."""

    def __init__(self, machine: str | None = None) -> None:
        require_type(machine, str | None, "machine")
        self._read = reader_of(machine_typed(machine), queue_settings(os.environ))

    def __call__(self, kept: Status | None = None) -> Status:
        """Return the status; `kept`: one of before, whose devices are kept, so that only the jobs are read."""
        return Status.of(self._read(kept))
