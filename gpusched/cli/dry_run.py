"""`launch --dry-run`: what a launch would start, and where, without starting it."""

import os
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from itertools import groupby

from gpusched.execution.plan_options import PlanOptions, xla_variable
from gpusched.model.plan import Plan, ReplicaSpec
from gpusched.model.workload import Workload
from gpusched.planner import document, replica_specs
from gpusched.render.text import printable
from gpusched.settings import Settings

__all__ = ["show_dry_run"]


def show_dry_run(wish: PlanOptions, workload: Workload, settings: Settings, *, as_json: bool) -> None:
    """Print the plan as `plan` does, and the command line of every replica.

    Raises what a launch would raise at this moment: NeverFits, NotNow, UsageError, HostFault.
    """
    plan = _plan(wish, workload, settings)
    specs = replica_specs(
        plan,
        workload,
        python=sys.executable,
        cwd=os.getcwd(),  # noqa: PTH109 (a text is wanted)
        xla_variable=xla_variable(),
        identity=lambda _: {},
    )
    if as_json:
        import msgspec

        report = document(plan, xla_variable()) | {
            "starts_now": True,
            "commands": {spec.replica.name: spec.argv for spec in specs},
        }
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    from gpusched.planner.plan_format import number
    from gpusched.render.plan import show_plan

    show_plan(plan, sys.stdout)
    print(f"\nwould start now: {number(len(specs), 'process')}")
    for line in _command_lines(specs):
        print(line)
    print("nothing has been started")


def _plan(wish: PlanOptions, workload: Workload, settings: Settings) -> Plan:
    """Return the plan that a launch would follow, beside what others hold: also of a machine that is not here."""
    from gpusched.execution.known_leases import running_leases
    from gpusched.execution.lease_usage import current_leases
    from gpusched.leases.directory import lease_directory

    inventory, saved = wish.read_machine(settings)
    directory = lease_directory(settings, simulated=inventory.simulated)
    leases = current_leases(directory, inventory, partial(running_leases, settings.state_dir))
    return wish.plan_now((*saved, *leases), workload, inventory, settings)


def _command_lines(specs: tuple[ReplicaSpec, ...]) -> Iterator[str]:
    """Yield a line for each run of replicas with the same command: `  actor.0-31  python -m ...`."""
    runs = [list(run) for _, run in groupby(specs, key=lambda spec: (spec.replica.role, spec.argv))]
    names = [run[0].replica.name if len(run) == 1 else f"{run[0].replica.name}-{run[-1].replica.rank}" for run in runs]
    width = max(map(len, names))
    for name, run in zip(names, runs, strict=True):
        yield f"  {name:<{width}}  {printable(shlex.join(run[0].argv))}"
