"""The host as Python code sees it: one moment of its devices, the jobs, and who uses what."""

import os
from collections.abc import Callable
from typing import Self

import msgspec

from gpusched.execution.snapshot import Snapshot, reader_of
from gpusched.settings import load_settings, machine_typed

__all__ = ["Status", "status", "status_reader"]


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
    return status_reader(machine)()


def status_reader(machine: str | None = None) -> Callable[[], Status]:
    """Return what reads the status again and again, and keeps the driver's library open meanwhile. Raises as status."""
    from gpusched.api.validation import require_type

    require_type(machine, str | None, "machine")
    read = reader_of(machine_typed(machine), load_settings(os.environ))
    return lambda: Status.of(read())
