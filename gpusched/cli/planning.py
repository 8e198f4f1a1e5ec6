"""What `plan` and `launch` share: their options, and the way from those to a plan for this host or for another."""

from typing import Annotated, NamedTuple

import typer

from gpusched import contract
from gpusched.model.plan import Plan
from gpusched.model.workload import Workload
from gpusched.settings import Settings

__all__ = ["ActorMemory", "ExcludeGpus", "Gpus", "LearnerMemory", "Policy", "Procs", "Wish", "xla_variable"]

Procs = Annotated[
    str | None,
    typer.Option(help="How many actors; the learner comes on top. max: as many as fit.", metavar="N|max"),
]
Gpus = Annotated[
    str | None, typer.Option(help="Only these devices: indices (0,2), MIG instances (0:2) or starts of uuids.")
]
ExcludeGpus = Annotated[str | None, typer.Option(help="All devices but these.")]
LearnerMemory = Annotated[
    str | None,
    typer.Option(
        help="The least memory of the learner, instead of the minimum and the share that the workload asks for. "
        "What is left over on its device is still its own.",
        metavar="AMOUNT",
    ),
]
ActorMemory = Annotated[
    str | None, typer.Option(help="The least memory of an actor, instead of what the workload says.", metavar="AMOUNT")
]
Policy = Annotated[
    str,
    typer.Option(
        help="balanced: the most memory for the actor that gets least. pack: that, on as few devices as possible. "
        "spread: that, with as few replicas on the fullest device as possible. exclusive: one replica a device."
    ),
]


class Wish(NamedTuple):
    """What a person typed, as it was typed."""

    procs: str | None = None
    machine: str | None = None
    gpus: str | None = None
    exclude_gpus: str | None = None
    learner_memory: str | None = None
    actor_memory: str | None = None
    policy: str = "balanced"

    def plan(self, workload: Workload, settings: Settings) -> Plan:
        """Return the plan for `workload`, beside the live jobs of this host if it is for this host.

        Raises UsageError, NeverFits, NotNow, and HostFault for a driver that does not work.
        """
        from gpusched.planner import Rules, counted_role, plan, request_for, select_devices
        from gpusched.probe.base import read_inventory, require_usable

        request = request_for(workload, self.procs, self.learner_memory, self.actor_memory)
        inventory, leases = read_inventory(self.machine)
        require_usable(inventory)
        if self.machine is None:
            from gpusched.cli.snapshot import with_descendants
            from gpusched.probe.drained import mark, read_drained
            from gpusched.supervisor.jobdir import leases_of, list_jobs
            from gpusched.supervisor.kernel import boot_id

            inventory = mark(inventory, read_drained(settings.state_dir, boot_id()))
            leases = with_descendants(inventory, leases_of(list_jobs(settings.state_dir)))
        rules = Rules(
            policy=self.policy,
            context_mib=settings.context_mib,
            headroom=settings.headroom,
            only=select_devices(inventory, self.gpus, self.exclude_gpus),
        )
        maximise = counted_role(workload) if self.procs == "max" else None
        return plan(request, inventory, leases, rules, maximise)


def xla_variable() -> str:
    """Return the variable that limits the JAX that is installed here."""
    from importlib.util import find_spec

    if find_spec("jaxlib") is None:
        return contract.xla_fraction_variable(None)
    from importlib.metadata import PackageNotFoundError, version  # takes 30 ms to import

    try:
        return contract.xla_fraction_variable(version("jaxlib"))
    except PackageNotFoundError:  # a folder of that name, perhaps
        return contract.xla_fraction_variable(None)
