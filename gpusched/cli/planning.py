"""The options of a plan and of a launch: PLAN is the API's PlanArguments."""

from typing import Final

from gpusched.api.catalog import workload_names
from gpusched.cli.options import Option, Options, argument, flag, switch

__all__ = ["LISTEN", "PLAN", "WORKLOAD"]


def _complete_policy(incomplete: str) -> list[str]:
    from gpusched.api.planning import policies

    return [name for name in policies() if name.startswith(incomplete)]


WORKLOAD: Final = argument("A workload's name, or the path of its workload.toml.", complete=workload_names)
PLAN: Final[Options] = {
    "procs": Option("How many actors; the learner comes on top. max: as many as fit.", metavar="N|max"),
    "machine": Option(
        "Plan for another machine: p3.8xlarge, dgx-h100, 4x16GiB, 1x80GiB+2x24GiB, a file saved by "
        "gpusched status --json, cpu, or here for this host.",
        metavar="NAME|4x16GiB|FILE",
    ),
    "gpus": Option("Only these devices: indices (0,2), MIG instances (0:2) or starts of uuids.", metavar="LIST"),
    "exclude_gpus": Option("All devices but these.", metavar="LIST"),
    "ignore_foreign": Option(
        "Plan as if these processes, of no job, were not there: pids, users, or '<1GiB', all that hold less than that; "
        "several with commas. The last to ask for memory may find none.",
        metavar="PID|USER|<1GiB",
    ),
    "learner_memory": Option(
        "The least memory of the learner, instead of the minimum and the share that the workload asks for. "
        "What is left over on its device is still its own.",
        metavar="AMOUNT",
    ),
    "actor_memory": Option(
        "The least memory of an actor, instead of the workload's. auto: what earlier runs needed.", metavar="AMOUNT"
    ),
    "policy": Option(
        "balanced: the most memory for the actor that gets least. pack: the fewest devices, the fullest with room. "
        "spread: as few replicas on the fullest device as possible. exclusive: one replica a device. "
        "[default: balanced, in the queue pack]",
        metavar="POLICY",
        complete=_complete_policy,
    ),
    "grow": switch(
        "Take what is left over on the devices, or only the least that the workload needs. "
        "[default: grow, but not in the queue or with --policy pack]",
        "--grow/--no-grow",
    ),
}
LISTEN: Final[Options] = {
    "listen": Option(
        "Take actors of other hosts too, which join it with a key: tcp://0.0.0.0:5555 for all addresses.",
        metavar="tcp://ADDRESS:PORT",
    ),
    "insecure": flag("With --listen, on loopback only: without keys, in plain text."),
}
