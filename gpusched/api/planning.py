"""Plans: which process would go on which GPU, and what a launch would start. Nothing is started."""

import os
from typing import NamedTuple, Self, Unpack

from msgspec import structs

from gpusched.api.plan_arguments import PlanArguments, plan_options, require_known, with_signature
from gpusched.api.workloads import Options, WorkloadName, named_workload, own_options
from gpusched.execution.plan_options import PlanOptions, xla_variable
from gpusched.execution.workload_options import Configured, configured_by
from gpusched.model import plan as model
from gpusched.settings import load_settings

__all__ = ["DryRun", "Plan", "machines", "plan", "policies"]


class Plan(model.Plan, frozen=True, kw_only=True):
    """The plan of a workload: `counts`, `devices`, `replicas`, why it is so, and warnings. Amounts are MiB."""

    @classmethod
    def of(cls, plan: model.Plan) -> Self:
        """Return the same plan as a value that prints."""
        return cls(**structs.asdict(plan))

    def document(self) -> dict[str, object]:
        """Return it as values for JSON: what `gpusched plan --json` prints."""
        from gpusched.planner import document

        return document(self, xla_variable())

    def __repr__(self) -> str:
        from gpusched.render.plan import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from gpusched.render.html import plan_html

        return plan_html(self)


class DryRun(NamedTuple):
    """What a launch would start at this moment."""

    plan: Plan
    commands: dict[str, tuple[str, ...]]
    """The program and the arguments of each process, by its name."""


def policies() -> list[str]:
    """Return what `policy` may be."""
    from gpusched.planner.policies import POLICIES

    return list(POLICIES)


def machines() -> list[str]:
    """Return the machines that `machine` may be beside this host, "here", and files that `status --json` saved."""
    from gpusched.probe.profile import PROFILES

    return list(PROFILES)


@with_signature(PlanArguments, PlanOptions._field_defaults)
def plan(workload: WorkloadName = "snake", *, options: Options | None = None, **given: Unpack[PlanArguments]) -> Plan:
    """Return which process would go on which GPU with how much memory, and why. Nothing is started.

    `workload` is a name or the path of a workload.toml. Raises UsageError, NeverFits and NotNow, and HostFault for a
    driver that does not work.

    Example: gpusched.plan(procs=32, machine="p3.8xlarge").counts == (3, 10, 10, 10)
    """
    require_known(given, PlanArguments)
    settings = load_settings(os.environ)
    named = named_workload(workload)
    chosen = Configured(named, b"{}")
    if options or named.conditional or named.memory_options:
        chosen = configured_by(named, own_options(options))
    return Plan.of(plan_options(given).here(settings).plan(chosen.workload, settings, chosen.options))
