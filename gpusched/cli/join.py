"""`gpusched join`: actors on this host for a learner on another one, planned, started and followed like any job."""

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusched.api.arguments import plan_options, queue_options
from gpusched.cli.foreground import require_no_queue, run_here
from gpusched.cli.options import Option, Options, argument, flag, with_options
from gpusched.cli.planning import PLAN
from gpusched.cli.queue_options import DETACH, QUEUE
from gpusched.engines.local import Asked
from gpusched.errors import UsageError
from gpusched.execution.plan_options import PlanOptions, visible_here
from gpusched.execution.queue_options import QueueOptions
from gpusched.execution.requirements import require_modules, require_programs
from gpusched.execution.workloads import complete_workload
from gpusched.model.job import Joining
from gpusched.render.text import printable
from gpusched.settings import Settings, load_settings, machine_typed

if TYPE_CHECKING:
    from gpusched.execution.directory import JobDirectory
    from gpusched.joining.invitation import Invited
    from gpusched.joining.keys import JoinKey
    from gpusched.model.plan import Plan

__all__ = ["join"]

_ANSWER_S: Final = 10.0
_LONGEST_HOST: Final = 32


_OPTIONS: Final[Options] = {
    "endpoint": argument("Where the learner listens, as its launch printed it.", "tcp://HOST:PORT"),
    "key": Option("The file of a key of that job, which only you may read (0600).", metavar="FILE"),
    "procs": Option("How many actors. [default: max, as many as fit; without a GPU as many as CPUs]", metavar="N|max"),
    "machine": Option("A machine that is not here, whose devices are simulated.", metavar="NAME|FILE"),
    **{name: PLAN[name] for name in ("gpus", "exclude_gpus", "actor_memory", "policy")},
    "workload": Option(
        "The workload's file on this host, if it is not found by its name.",
        metavar="NAME|PATH",
        complete=complete_workload,
    ),
    "different": flag("Go on though code or versions are not the learner's."),
    "patience": Option(
        "End when the learner sends nothing for this time: 90s, 15m, 2h.", metavar="SPAN", kind=str, default="15m"
    ),
    "insecure": flag("Of a learner without keys, on loopback only."),
    **DETACH,
    **QUEUE,
    "as_json": flag("Print only the ended job as JSON; with -d the queued one.", "--json"),
}


@with_options(_OPTIONS)
def join(
    *,
    endpoint: str,
    key: str | None,
    workload: str | None,
    different: bool,
    insecure: bool,
    detach: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run actors on this host for a learner on another one, until it ends; Ctrl-C takes them away again.

    The workload is this host's own, the settings are the learner's. `gpusched launch WORKLOAD --listen tcp://...` on
    the learner's host prints the line to run here, and where its key is, of which this host needs a copy.

    Example: gpusched join tcp://10.0.0.1:5555 --key join.key --procs 16
    """
    queue = queue_options(given)
    if not detach:
        require_no_queue(queue, "a join")
    patience_s = _whole_seconds(given["patience"])
    wish = plan_options(given)
    machine = machine_typed(wish.machine)
    wish = wish._replace(procs=wish.procs or "max", machine=machine, visible=visible_here(os.environ, machine))
    settings = load_settings(os.environ)
    ours = _key(endpoint, key, insecure=insecure)
    invited = _invited(endpoint, ours)
    asked = _asked(invited, workload, wish, different=different)
    network = Joining(
        endpoint=endpoint,
        job=invited.invitation.job,
        host=invited.joined,
        first_rank=invited.first_rank,
        key=None if key is None else str(Path(key).absolute()),
        patience_s=patience_s,
    )
    if detach:
        _queue(asked, network, ours, queue, settings, as_json=as_json)
    else:
        _run(asked, network, settings, as_json=as_json)


def _key(endpoint: str, file: str | None, *, insecure: bool) -> "JoinKey | None":
    """Return the key to ask with, None to ask without one. Raises UsageError, NotFound, HostFault."""
    from gpusched.execution.network import require_keys_or_loopback
    from gpusched.joining.keys import read_join_key
    from gpusched.joining.tcp import Tcp

    to = Tcp.parse(endpoint, "join")
    if (file is None) != insecure:
        message = "--key and --insecure exclude each other" if insecure else f"{endpoint}: with which key?"
        raise UsageError(message, "give the key file of that job: --key FILE")
    require_keys_or_loopback(to, insecure=insecure)
    return None if file is None else read_join_key(Path(file), any_file=True)


def _invited(endpoint: str, key: "JoinKey | None") -> "Invited":
    """Ask the learner. Raises NotFound if none answers, UsageError for a key that is not let in, ChannelError."""
    from gpusched.joining.invitation import request_join

    return request_join(endpoint, key, _host_name(), _ANSWER_S)


def _asked(invited: "Invited", workload: str | None, wish: PlanOptions, *, different: bool) -> Asked:
    from gpusched.cli.invited import workload_for

    found, options = workload_for(invited.invitation, workload, different=different)
    require_modules(found)
    require_programs(found)
    return Asked(workload=found, options=options, wish=wish)


def _run(asked: Asked, network: Joining, settings: Settings, *, as_json: bool) -> None:
    from msgspec.structs import replace

    def lines(_: "JobDirectory", plan: "Plan") -> Sequence[str]:
        actors = f"{len(plan.replicas)} actors" if len(plan.replicas) > 1 else "1 actor"
        return [printable(f"joined {network.job} at {network.endpoint}: {actors} as {network.host}")]

    run_here(replace(asked, network=network), settings, watch=False, as_json=as_json, lines=lines)


def _queue(
    asked: Asked, network: Joining, key: "JoinKey | None", queue: QueueOptions, settings: Settings, *, as_json: bool
) -> None:
    """Put the actors into the queue, with a key of which the daemon will find a copy whenever their turn comes."""
    import sys

    from msgspec.structs import replace

    from gpusched.cli.submitted import submit_detached
    from gpusched.execution.network import keep_key
    from gpusched.execution.submission import workload_submission

    if key is not None:
        network = replace(network, key=str(keep_key(settings.state_dir, key)))
    submit_detached(
        workload_submission(asked.workload, asked.options, asked.wish, queue, network), settings, as_json=as_json
    )
    if not as_json:
        print(printable(f"  it joins {network.job} at {network.endpoint} as {network.host}"), file=sys.stderr)


def _host_name() -> str:
    """Return what this host calls itself, in the letters that a learner takes."""
    short = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0]).lstrip("_-")
    return short[:_LONGEST_HOST] or "host"


def _whole_seconds(patience: str) -> int:
    from gpusched.times import parse_seconds

    return max(1, round(parse_seconds(patience, "--patience")))
