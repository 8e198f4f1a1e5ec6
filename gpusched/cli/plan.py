"""`gpusched plan`: show what would go where, and why, without starting anything."""

import os
import sys
from typing import Any, Final

from gpusched.api.arguments import plan_options
from gpusched.cli.options import Context, Option, Options, flag, with_options
from gpusched.cli.planning import PLAN
from gpusched.cli.workload_arguments import configured_to_plan
from gpusched.execution.plan_options import machine_meant, visible_here, xla_variable
from gpusched.execution.workloads import complete_workload, load_workload
from gpusched.settings import load_settings

__all__ = ["plan"]

_USUAL: Final = "snake"


_OPTIONS: Final[Options] = {
    "procs": PLAN["procs"],
    "workload": Option(
        "A workload's name, or the path of its workload.toml.",
        metavar="NAME|FILE",
        complete=complete_workload,
        kind=str,
        default=_USUAL,
    ),
    **PLAN,
    "as_json": flag("Print the plan as JSON.", "--json"),
}


@with_options(_OPTIONS)
def plan(context: Context, *, workload: str, as_json: bool, **given: Any) -> None:
    """Show which process would go on which GPU with how much memory, and why. Nothing is started.

    Options that plan does not know are the workload's own: gpusched plan -- --help

    Example: gpusched plan --procs 32 --machine p3.8xlarge
    """
    settings = load_settings(os.environ)
    wish = plan_options(given)
    machine = machine_meant(wish.machine, settings)
    wish = wish._replace(machine=machine, visible=visible_here(os.environ, machine))
    command = "gpusched plan" if workload == _USUAL else f"gpusched plan --workload {workload}"
    found = wish.plan(configured_to_plan(load_workload(workload), context.args, command), settings)
    if as_json:
        import msgspec

        from gpusched.planner import document

        print(msgspec.json.format(msgspec.json.encode(document(found, xla_variable()))).decode())
        return
    from gpusched.render.plan import show_plan

    show_plan(found, sys.stdout)
