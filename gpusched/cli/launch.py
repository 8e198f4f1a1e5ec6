"""`gpusched launch`: plan a workload, start its processes under a supervisor, and follow them to the end."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpusched.api.arguments import plan_options, queue_options
from gpusched.cli.cluster import cluster_wish, print_warnings, show_plan
from gpusched.cli.cluster_options import CLUSTER
from gpusched.cli.foreground import require_no_queue, run_here
from gpusched.cli.options import Context, Option, Options, flag, with_options
from gpusched.cli.planning import LISTEN, PLAN, WORKLOAD
from gpusched.cli.queue_options import DETACH, QUEUE
from gpusched.cli.workload_arguments import configured
from gpusched.engines.cluster.options import engine_of
from gpusched.engines.local import Asked
from gpusched.errors import UsageError
from gpusched.execution.active_python import with_active_python
from gpusched.execution.plan_options import machine_meant, visible_here
from gpusched.execution.queue_options import QueueOptions
from gpusched.execution.requirements import require_modules, require_programs
from gpusched.execution.workload_options import Configured
from gpusched.execution.workloads import load_workload
from gpusched.settings import LOCAL, Settings, load_settings

if TYPE_CHECKING:
    from gpusched.model.group import ClusterJob
    from gpusched.model.job import Listening
    from gpusched.model.workload import Workload

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
    context: Context,
    *,
    workload: str,
    watch: bool,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Start a workload's processes and follow them until they end; Ctrl-C stops them.

    With -d it waits in the queue for its turn instead, and goes on without a terminal. Options that launch does not
    know are the workload's own: gpusched launch snake -- --help

    Example: gpusched launch snake --procs 4 --network small
    """
    from gpusched.execution.expand import require_short_socket

    queue = queue_options(given)
    _require_one_way(queue, detach=detach, dry_run=dry_run, watch=watch)
    picked = with_active_python(load_workload(workload), os.environ)
    named = picked.workload
    loaded, options = configured(named, context.args, f"gpusched launch {named.name}")
    settings = load_settings(os.environ)
    listen, insecure = given["listen"], given["insecure"]
    wish = plan_options(given)._replace(least_procs=1 if listen is None else 0)
    cluster = cluster_wish(given)
    chosen = engine_of(cluster, loaded, settings)
    if chosen != LOCAL:
        _require_no_network(chosen, listen=listen, insecure=insecure, watch=watch)
        from gpusched.engines.cluster.prepare import cluster_job, preflight, preview

        job = cluster_job(chosen, Configured(loaded, options), wish, cluster, settings)
        job = preview(job, cluster) if dry_run else preflight(job, cluster, now=not detach)
        _on_cluster(job, queue, settings, detach=detach, dry_run=dry_run, as_json=as_json)
        return
    if (notice := picked.notice()) is not None and not as_json:
        print(f"gpusched: {notice}", file=sys.stderr)
    machine = machine_meant(wish.machine, settings)
    wish = wish._replace(machine=machine, visible=visible_here(os.environ, machine))
    require_modules(loaded)
    if not queue.follows:  # what goes before may still make the programs
        require_programs(loaded)
    require_short_socket(loaded, settings)
    network = _listening(loaded, listen, insecure=insecure, at_once=not detach)
    asked = Asked(workload=loaded, options=options, wish=wish, network=network)
    if dry_run:
        from gpusched.cli.dry_run import show_dry_run

        show_dry_run(wish, loaded, settings, as_json=as_json)
    elif detach:
        _queue(asked, network, queue, settings, as_json=as_json)
    else:
        _run(asked, network, settings, watch=watch, as_json=as_json)


def _on_cluster(
    job: "ClusterJob", queue: QueueOptions, settings: Settings, *, detach: bool, dry_run: bool, as_json: bool
) -> None:
    from gpusched.api.clusters import ClusterPlan
    from gpusched.engines.cluster.prepare import driver_job

    plan = ClusterPlan.of(job, job.workload.name)
    print_warnings(plan)
    if dry_run:
        show_plan(plan, as_json=as_json)
    elif detach:
        _queue(driver_job(job), None, queue, settings, as_json=as_json)
    else:
        run_here(driver_job(job), settings, watch=False, as_json=as_json, first_line=repr(plan))


def _require_no_network(engine: str, *, listen: str | None, insecure: bool, watch: bool) -> None:
    """Raises UsageError for options of a launch on one host."""
    for option, given in (("--listen", listen is not None), ("--insecure", insecure), ("--watch", watch)):
        if given:
            raise UsageError(f"{option} is for a launch on this host, not on {engine}", f"leave {option} out")


def _require_one_way(queue: QueueOptions, *, detach: bool, dry_run: bool, watch: bool) -> None:
    """Raises UsageError for options that belong to another way of launching."""
    if detach and (dry_run or watch):
        raise UsageError(f"-d and {'--dry-run' if dry_run else '--watch'} exclude each other", "leave one of them out")
    if not detach:
        require_no_queue(queue, "a launch")


def _listening(workload: "Workload", listen: str | None, *, insecure: bool, at_once: bool) -> "Listening | None":
    if listen is None:
        if insecure:
            raise UsageError("--insecure belongs to --listen", "add --listen tcp://127.0.0.1:PORT, or leave it out")
        return None
    from gpusched.cli.listening import listening  # most launches stay on one host

    return listening(workload, listen, insecure=insecure, at_once=at_once)


def _run(asked: Asked, network: "Listening | None", settings: Settings, *, watch: bool, as_json: bool) -> None:
    if network is None:
        run_here(asked, settings, watch=watch, as_json=as_json)
        return
    from gpusched.cli.listening import how_to_join_it

    lines = partial(how_to_join_it, network, asked.workload)
    run_here(asked, settings, watch=watch, as_json=as_json, lines=lines)


def _queue(
    asked: Asked, network: "Listening | None", queue: QueueOptions, settings: Settings, *, as_json: bool
) -> None:
    from gpusched.cli.submitted import submit_detached
    from gpusched.execution.submission import workload_submission

    submission = workload_submission(asked.workload, asked.options, asked.wish, queue, asked.network)
    job = submit_detached(submission, settings, as_json=as_json)
    if network is not None and not as_json:
        from gpusched.cli.listening import print_how_to_join

        print_how_to_join(network, asked.workload, settings.state_dir / "jobs" / job, asked.wish.procs)
