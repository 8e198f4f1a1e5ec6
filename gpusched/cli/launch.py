"""`gpusched launch`: plan a workload, start its processes under a supervisor, and follow them to the end."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpusched.cli.cluster import (
    Address,
    ClusterWish,
    CpusPerNode,
    DeviceMemory,
    Engine,
    GpusPerNode,
    Nodes,
    Patience,
    Site,
    engine_of,
    fitted,
    fitted_if_there,
    group_of,
)
from gpusched.cli.foreground import require_no_queue, run_here
from gpusched.cli.planning import ActorMemory, ExcludeGpus, Gpus, LearnerMemory, Policy, Procs
from gpusched.cli.queue_options import After, AfterAny, At, Detach, Hold, Name, Priority, Requeue, TimeLimit
from gpusched.cli.workload_arguments import configured
from gpusched.engines.base import LOCAL
from gpusched.engines.local import Asked
from gpusched.errors import UsageError
from gpusched.execution.active_python import with_active_python
from gpusched.execution.plan_options import PlanOptions, machine_meant, visible_here
from gpusched.execution.queue_options import QueueOptions
from gpusched.execution.requirements import require_modules, require_programs
from gpusched.execution.workloads import complete_workload, load_workload
from gpusched.settings import Settings, load_settings

if TYPE_CHECKING:
    from gpusched.model.group import ClusterJob
    from gpusched.model.job import Listening
    from gpusched.model.workload import Workload

__all__ = ["launch"]


def launch(
    context: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(help="A workload's name, or the path of its workload.toml.", autocompletion=complete_workload),
    ],
    procs: Procs = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="Plan for a machine that is not here, and run with its devices simulated; here: this host. "
            "[default: default_machine of the configuration, else here]",
            metavar="NAME|4x16GiB|FILE",
        ),
    ] = None,
    gpus: Gpus = None,
    exclude_gpus: ExcludeGpus = None,
    learner_memory: LearnerMemory = None,
    actor_memory: ActorMemory = None,
    policy: Policy = "balanced",
    listen: Annotated[
        str | None,
        typer.Option(
            help="Take actors of other hosts too, which join it with a key: tcp://0.0.0.0:5555 for all addresses.",
            metavar="tcp://ADDRESS:PORT",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="With --listen, on loopback only: without keys, in plain text.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Draw a game while it is played.")] = False,
    detach: Detach = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Start nothing: show the plan and the commands, or why it cannot start now."),
    ] = False,
    name: Name = None,
    priority: Priority = 0,
    after: After = None,
    after_any: AfterAny = None,
    at: At = None,
    time_limit: TimeLimit = None,
    hold: Hold = False,
    requeue: Requeue = False,
    engine: Engine = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    cpus_per_node: CpusPerNode = None,
    device_memory: DeviceMemory = None,
    site: Site = None,
    address: Address = None,
    patience: Patience = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print only the ended job as JSON; with -d the queued one, with --dry-run the plan."
        ),
    ] = False,
) -> None:
    """Start a workload's processes and follow them until they end; Ctrl-C stops them.

    With -d it waits in the queue for its turn instead, and goes on without a terminal. Options that launch does not
    know are the workload's own: gpusched launch snake -- --help

    Example: gpusched launch snake --procs 4 --network small
    """
    from gpusched.execution.expand import require_short_socket

    queue = QueueOptions(name, priority, tuple(after or ()), at, time_limit, hold, requeue, tuple(after_any or ()))
    _require_one_way(queue, detach=detach, dry_run=dry_run, watch=watch)
    picked = with_active_python(load_workload(workload), os.environ)
    named = picked.workload
    loaded, options = configured(named, context.args, f"gpusched launch {named.name}")
    settings = load_settings(os.environ)
    wish = PlanOptions(
        procs, machine, gpus, exclude_gpus, learner_memory, actor_memory, policy, 1 if listen is None else 0
    )
    cluster = ClusterWish(
        engine, nodes, gpus_per_node, cpus_per_node, device_memory, tuple(site or ()), address, patience
    )
    chosen = engine_of(cluster, loaded, settings)
    if chosen != LOCAL:
        _require_no_network(chosen, listen=listen, insecure=insecure, watch=watch)
        group = group_of(chosen, loaded, options, wish, cluster, settings)
        group = fitted_if_there(group, cluster) if dry_run else fitted(group, cluster, now=not detach)
        _on_cluster(group, queue, settings, detach=detach, dry_run=dry_run, as_json=as_json)
        return
    if (notice := picked.notice()) is not None and not as_json:
        print(f"gpusched: {notice}", file=sys.stderr)
    machine = machine_meant(machine, settings)
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
    group: "ClusterJob", queue: QueueOptions, settings: Settings, *, detach: bool, dry_run: bool, as_json: bool
) -> None:
    from gpusched.cli.cluster import layout_text, seen_to_here, show_group
    from gpusched.model.job import ClusterJobRef

    if dry_run:
        show_group(group, as_json=as_json)
        return
    import msgspec

    here, options, network = seen_to_here(group), msgspec.json.encode(group), ClusterJobRef(engine=group.engine)
    if detach:
        from gpusched.cli.submitted import submit_detached
        from gpusched.execution.submission import workload_submission

        submit_detached(workload_submission(here, options, PlanOptions(), queue, network), settings, as_json=as_json)
        return
    asked = Asked(workload=here, options=options, wish=PlanOptions(), network=network)
    run_here(asked, settings, watch=False, as_json=as_json, first_line=layout_text(group))


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

    submission = workload_submission(asked.workload, asked.options, asked.wish, queue, network)
    job = submit_detached(submission, settings, as_json=as_json)
    if network is not None and not as_json:
        from gpusched.cli.listening import print_how_to_join

        print_how_to_join(network, asked.workload, settings.state_dir / "jobs" / job, asked.wish.procs)
