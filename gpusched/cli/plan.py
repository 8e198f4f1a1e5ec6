"""`gpusched plan`: say what would go where, and why, without starting anything."""

import os
import sys
from typing import Annotated

import typer

from gpusched.cli.planning import Wish, xla_variable
from gpusched.cli.workloads import load_workload
from gpusched.settings import load_settings

__all__ = ["plan"]


def plan(
    *,
    procs: Annotated[
        str | None,
        typer.Option(help="How many actors; the learner comes on top. max: as many as fit.", metavar="N|max"),
    ] = None,
    workload: Annotated[str, typer.Option(help="A workload's name, or the path of its workload.toml.")] = "snake",
    machine: Annotated[
        str | None,
        typer.Option(
            help="Plan for another machine: p3.8xlarge, dgx-h100, 4x16GiB, 1x80GiB+2x24GiB, a file saved by "
            "gpusched status --json, or cpu."
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Only these devices: indices (0,2), MIG instances (0:2) or starts of uuids.")
    ] = None,
    exclude_gpus: Annotated[str | None, typer.Option(help="All devices but these.")] = None,
    learner_memory: Annotated[
        str | None,
        typer.Option(
            help="The least memory of the learner, instead of the minimum and the share that the workload asks for. "
            "What is left over on its device is still its own.",
            metavar="AMOUNT",
        ),
    ] = None,
    actor_memory: Annotated[
        str | None,
        typer.Option(help="The least memory of an actor, instead of what the workload says.", metavar="AMOUNT"),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="balanced: the most memory for the actor that gets least. pack: that, on as few devices as possible. "
            "spread: that, with as few replicas on the fullest device as possible. exclusive: one replica a device."
        ),
    ] = "balanced",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say which process would go on which GPU with how much memory, and why. Nothing is started.

    Example: gpusched plan --procs 32 --machine p3.8xlarge
    """
    wish = Wish(procs, machine, gpus, exclude_gpus, learner_memory, actor_memory, policy)
    found = wish.plan(load_workload(workload), load_settings(os.environ))
    if as_json:
        import msgspec

        from gpusched.planner import document

        print(msgspec.json.format(msgspec.json.encode(document(found, xla_variable()))).decode())
        return
    from gpusched.cli.render_plan import show_plan

    show_plan(found, sys.stdout)
