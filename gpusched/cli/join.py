"""`gpusched join`: actors on this host for a learner on another one, planned, started and followed like any job."""

import sys
from typing import Any, Final

from gpusched.api.arguments import queue_fields, require_no_queue
from gpusched.cli.foreground import run_here
from gpusched.cli.options import Option, Options, argument, flag, with_options
from gpusched.cli.planning import PLAN, WORKLOAD
from gpusched.cli.queue_options import DETACH, QUEUE
from gpusched.model.job import Joining
from gpusched.render.text import printable

__all__ = ["join"]

_OPTIONS: Final[Options] = {
    "endpoint": argument("Where the learner listens, as its launch printed it.", "tcp://HOST:PORT"),
    "key": Option("The file of a key of that job, which only you may read (0600).", metavar="FILE"),
    "procs": Option("How many actors. [default: max, as many as fit; without a GPU as many as CPUs]", metavar="N|max"),
    "machine": Option("A machine that is not here, whose devices are simulated.", metavar="NAME|FILE"),
    **{name: PLAN[name] for name in ("gpus", "exclude_gpus", "ignore_foreign", "actor_memory", "policy", "grow")},
    "workload": Option(
        "The workload's file on this host, if it is not found by its name.",
        metavar="NAME|PATH",
        complete=WORKLOAD.complete,
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
def join(*, endpoint: str, detach: bool, as_json: bool, **given: Any) -> None:
    """Run actors on this host for a learner on another one, until it ends; Ctrl-C takes them away again.

    The workload is this host's own, the settings are the learner's. `gpusched launch WORKLOAD --listen tcp://...` on
    the learner's host prints the line to run here, and where its key is, of which this host needs a copy.

    Example: gpusched join tcp://10.0.0.1:5555 --key join.key --procs 16
    """
    from gpusched.api.joining import prepare_join

    if not detach:
        require_no_queue(queue_fields(given))
    found = prepare_join(endpoint, begins="later" if detach else "now", **given)
    for notice in found.notices:
        print(f"gpusched: warning: {printable(notice)}", file=sys.stderr)
    if not detach:
        run_here(found, watch=False, as_json=as_json)
        return
    from gpusched.cli.queue_answers import submit_detached

    submit_detached(found.submission(), found.settings, as_json=as_json)
    if not as_json and isinstance(found.network, Joining):
        network = found.network
        print(printable(f"  it joins {network.job} at {network.endpoint} as {network.host}"), file=sys.stderr)
