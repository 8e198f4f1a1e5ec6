"""`gpusched plan`: show what would go where, and why, without starting anything."""

import sys
from typing import Any, Final

from gpusched.cli.options import Context, Options, flag, with_options
from gpusched.cli.planning import PLAN, WORKLOAD
from gpusched.cli.workload_arguments import own_options

__all__ = ["plan"]

_USUAL: Final = "snake"


_OPTIONS: Final[Options] = {
    "procs": PLAN["procs"],
    "workload": WORKLOAD._replace(metavar="NAME|FILE", argument=False, default=_USUAL),
    **PLAN,
    "as_json": flag("Print the plan as JSON.", "--json"),
}


@with_options(_OPTIONS)
def plan(context: Context, *, workload: str, as_json: bool, **given: Any) -> None:
    """Show which process would go on which GPU with how much memory, and why. Nothing is started.

    Options that plan does not know are the workload's own: gpusched plan -- --help

    Example: gpusched plan --procs 32 --machine p3.8xlarge
    """
    from gpusched.api import planning

    command = "gpusched plan" if workload == _USUAL else f"gpusched plan --workload {workload}"
    found = planning.plan(workload, options=own_options(workload, context.args, command), **given)
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found.document())).decode())
        return
    from gpusched.render.plan import show_plan

    show_plan(found, sys.stdout)
