"""`gpusched launch`: plan a workload, start its processes under a supervisor, and follow them to the end."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from gpusched.cli.cluster import print_warnings, show_plan, with_engine_options
from gpusched.cli.cluster_options import CLUSTER
from gpusched.cli.options import Context, Option, Options, flag, with_options
from gpusched.cli.planning import LISTEN, PLAN, WORKLOAD
from gpusched.cli.queue_options import DETACH, QUEUE
from gpusched.cli.workload_arguments import own_options
from gpusched.errors import UsageError

if TYPE_CHECKING:
    from gpusched.api.arguments import Begins
    from gpusched.api.launching import Launch
    from gpusched.api.planning import DryRun

__all__ = ["launch"]


_MACHINE: Final = Option(
    "Plan for a machine that is not here, and run with its devices simulated; here: this host. "
    "[default: default_machine of the configuration, else here]",
    metavar="NAME|4x16GiB|FILE",
)
_OPTIONS: Final[Options] = {
    "workload": WORKLOAD,
    **PLAN,
    "machine": _MACHINE,
    **LISTEN,
    "watch": flag("Draw a game while it is played."),
    **DETACH,
    "dry_run": flag("Start nothing: show the plan and the commands, or why it cannot start now."),
    **QUEUE,
    **CLUSTER,
    "as_json": flag("Print only the ended job as JSON; with -d the queued one, with --dry-run the plan.", "--json"),
}


@with_options(_OPTIONS)
def launch(
    context: Context, *, workload: str, watch: bool, detach: bool, dry_run: bool, as_json: bool, **given: Any
) -> None:
    """Start a workload's processes and follow them until they end; Ctrl-C stops them.

    With -d it waits in the queue for its turn instead, and goes on without a terminal. Options that launch does not
    know are the workload's own: gpusched launch snake -- --help

    Example: gpusched launch snake --procs 4 --minutes 3
    """
    from gpusched.api.launching import prepare

    _require_one_way(given, detach=detach, dry_run=dry_run, watch=watch)
    options = own_options(workload, context.args, "gpusched launch {}")
    begins: Begins = "never" if dry_run else "later" if detach else "now"
    found = prepare(workload, options=options, begins=begins, **with_engine_options(given))
    if found.cluster is not None:
        if watch:
            raise UsageError(
                f"--watch is for a launch on this host, not on {found.cluster.job.engine}", "leave --watch out"
            )
        print_warnings(found.cluster)
    for notice in () if as_json else found.notices:
        print(f"gpusched: {notice}", file=sys.stderr)
    if dry_run:
        _show(found, as_json=as_json)
    elif detach:
        _queue(found, as_json=as_json)
    else:
        from gpusched.cli.foreground import run_here  # --help needs nothing of it

        run_here(found, watch=watch, as_json=as_json)


def _show(found: "Launch", *, as_json: bool) -> None:
    if found.cluster is not None:
        show_plan(found.cluster, as_json=as_json)
    else:
        _show_dry_run(found.dry_run(), as_json=as_json)


def _show_dry_run(found: "DryRun", *, as_json: bool) -> None:
    """Print the plan as `plan` does, and the command line of every replica."""
    if as_json:
        import msgspec

        report = found.plan.document() | {"starts_now": True, "commands": found.commands}
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    from gpusched.render.plan import show_plan

    show_plan(found.plan, sys.stdout)
    count = len(found.commands)
    print(f"\nwould start now: {count} process{'' if count == 1 else 'es'}")
    for line in _command_lines(found.commands):
        print(line)
    print("nothing has been started")


def _command_lines(commands: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield a line for each run of replicas with the same command: `  actor.0-31  python -m ...`."""
    from gpusched.render.text import printable

    by_command = groupby(commands.items(), key=lambda item: (item[0].rpartition(".")[0], item[1]))
    runs = [(argv, [name for name, _ in run]) for (_, argv), run in by_command]
    names = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1].rpartition('.')[2]}" for _, run in runs]
    width = max(map(len, names))
    for name, (argv, _) in zip(names, runs, strict=True):
        yield f"  {name:<{width}}  {printable(shlex.join(argv))}"


def _queue(found: "Launch", *, as_json: bool) -> None:
    from gpusched.cli.queue_answers import submit_detached

    job = submit_detached(found.submission(), found.settings, as_json=as_json)
    lines = () if as_json else found.how_to_join(job)
    if lines:
        print("  once it runs, others join it:", *lines, sep="\n  ", file=sys.stderr)


def _require_one_way(given: Mapping[str, Any], *, detach: bool, dry_run: bool, watch: bool) -> None:
    """Raises UsageError for options that belong to another way of launching."""
    if detach and (dry_run or watch):
        raise UsageError(f"-d and {'--dry-run' if dry_run else '--watch'} exclude each other", "leave one of them out")
    if not detach:
        from gpusched.api.arguments import queue_fields, require_no_queue

        require_no_queue(queue_fields(given))
