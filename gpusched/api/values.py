"""What the Python API returns of plans and hosts: values of gpusched.model that print as the command line does."""

from typing import Self

from msgspec import structs

from gpusched.execution.snapshot import Snapshot
from gpusched.model import plan as model

__all__ = ["Plan", "Status"]


class Plan(model.Plan, frozen=True, kw_only=True):
    """The plan of a workload: `counts`, `devices`, `replicas`, why it is so, and warnings. Amounts are MiB."""

    @classmethod
    def of(cls, plan: model.Plan) -> Self:
        """Return the same plan as a value that prints."""
        return cls(**structs.asdict(plan))

    def __repr__(self) -> str:
        from gpusched.render.plan import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from gpusched.render.html import plan_html

        return plan_html(self)


class Status(Snapshot, frozen=True, kw_only=True):
    """One moment of a host: `inventory`, `jobs`, `leases`, and `holders`, the lease of each process by its pid."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Return the same moment as a value that prints."""
        return cls(**structs.asdict(snapshot))

    def __repr__(self) -> str:
        from gpusched.render.status import status_text

        return status_text(self)

    def _repr_html_(self) -> str:
        from gpusched.render.html import status_html

        return status_html(self)
