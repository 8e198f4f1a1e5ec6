"""What the Python API returns of plans: values of gpusched.model that print as the command line does."""

from typing import Self

from msgspec import structs

from gpusched.model import plan as model

__all__ = ["Plan"]


class Plan(model.Plan, frozen=True, kw_only=True):
    """The plan of a workload: `counts`, `devices`, `replicas`, why it is so, and warnings. Amounts are MiB."""

    @classmethod
    def of(cls, plan: model.Plan) -> Self:
        """Return the same plan as a value that prints."""
        return cls(**structs.asdict(plan))

    def document(self) -> dict[str, object]:
        """Return it as values for JSON: what `gpusched plan --json` prints."""
        from gpusched.execution.plan_options import xla_variable
        from gpusched.planner import document

        return document(self, xla_variable())

    def __repr__(self) -> str:
        from gpusched.render.plan import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from gpusched.render.html import plan_html

        return plan_html(self)
