"""The options that `plan` and `launch` share."""

from typing import Annotated

from gpusched.cli.options import Option

__all__ = [
    "ActorMemory",
    "ExcludeGpus",
    "Gpus",
    "LearnerMemory",
    "Machine",
    "Policy",
    "Procs",
]


def _complete_policy(incomplete: str) -> list[str]:
    from gpusched.planner.policies import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


Procs = Annotated[
    str | None,
    Option("How many actors; the learner comes on top. max: as many as fit.", metavar="N|max"),
]
Machine = Annotated[
    str | None,
    Option(
        "Plan for another machine: p3.8xlarge, dgx-h100, 4x16GiB, 1x80GiB+2x24GiB, a file saved by "
        "gpusched status --json, cpu, or here for this host.",
        metavar="NAME|4x16GiB|FILE",
    ),
]
Gpus = Annotated[
    str | None,
    Option("Only these devices: indices (0,2), MIG instances (0:2) or starts of uuids.", metavar="LIST"),
]
ExcludeGpus = Annotated[str | None, Option("All devices but these.", metavar="LIST")]
LearnerMemory = Annotated[
    str | None,
    Option(
        "The least memory of the learner, instead of the minimum and the share that the workload asks for. "
        "What is left over on its device is still its own.",
        metavar="AMOUNT",
    ),
]
ActorMemory = Annotated[
    str | None, Option("The least memory of an actor, instead of the workload's.", metavar="AMOUNT")
]
Policy = Annotated[
    str,
    Option(
        "balanced: the most memory for the actor that gets least. pack: that, on as few devices as possible. "
        "spread: that, with as few replicas on the fullest device as possible. exclusive: one replica a device.",
        metavar="POLICY",
        complete=_complete_policy,
    ),
]
