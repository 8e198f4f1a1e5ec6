"""`gpusched plan`: show what would go where, and why, without starting anything."""

import os
import sys
from typing import Annotated, Final

from gpusched.cli.options import Context, Option
from gpusched.cli.planning import ActorMemory, ExcludeGpus, Gpus, LearnerMemory, Machine, Policy, Procs
from gpusched.cli.workload_arguments import configured_to_plan
from gpusched.execution.plan_options import PlanOptions, machine_meant, visible_here, xla_variable
from gpusched.execution.workloads import complete_workload, load_workload
from gpusched.settings import load_settings

__all__ = ["plan"]

_USUAL: Final = "snake"


def plan(
    context: Context,
    *,
    procs: Procs = None,
    workload: Annotated[
        str,
        Option(
            "A workload's name, or the path of its workload.toml.",
            metavar="NAME|FILE",
            complete=complete_workload,
        ),
    ] = _USUAL,
    machine: Machine = None,
    gpus: Gpus = None,
    exclude_gpus: ExcludeGpus = None,
    learner_memory: LearnerMemory = None,
    actor_memory: ActorMemory = None,
    policy: Policy = "balanced",
    as_json: Annotated[bool, Option("Print the plan as JSON.", ("--json",))] = False,
) -> None:
    """Show which process would go on which GPU with how much memory, and why. Nothing is started.

    Options that plan does not know are the workload's own: gpusched plan -- --help

    Example: gpusched plan --procs 32 --machine p3.8xlarge
    """
    settings = load_settings(os.environ)
    machine = machine_meant(machine, settings)
    visible = visible_here(os.environ, machine)
    wish = PlanOptions(procs, machine, gpus, exclude_gpus, learner_memory, actor_memory, policy, visible=visible)
    command = "gpusched plan" if workload == _USUAL else f"gpusched plan --workload {workload}"
    found = wish.plan(configured_to_plan(load_workload(workload), context.args, command), settings)
    if as_json:
        import msgspec

        from gpusched.planner import document

        print(msgspec.json.format(msgspec.json.encode(document(found, xla_variable()))).decode())
        return
    from gpusched.render.plan import show_plan

    show_plan(found, sys.stdout)
