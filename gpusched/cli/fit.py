"""`gpusched fit`: run one replica of each role for a short time, and print what to write into workload.toml."""

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gpusched.cli.follow import moments, noting_stop_requests
from gpusched.cli.options import Context, Option, Options, flag, with_options
from gpusched.cli.planning import PLAN, WORKLOAD
from gpusched.cli.workload_arguments import own_options
from gpusched.errors import GpuschedError
from gpusched.model.status import JobState, JobStatus
from gpusched.render.ansi import is_plain, replace_line, show
from gpusched.render.fit import draw_fit, progress

if TYPE_CHECKING:
    from gpusched.api.fitting import FitRun

__all__ = ["fit"]

_INTERRUPTED: Final = 130

_OPTIONS: Final[Options] = {
    "workload": WORKLOAD,
    "time": Option(
        "How long it runs: 30s, 5m. What it needs later only, it must reach by then.",
        metavar="SPAN",
        kind=str,
        default="1m",
    ),
    "procs": Option("How many actors. [default: 1]", metavar="N", least=1, kind=int | None),
    **{name: PLAN[name] for name in ("gpus", "exclude_gpus", "ignore_foreign")},
    "as_json": flag("Print the figures as JSON.", "--json"),
}


@with_options(_OPTIONS)
def fit(context: Context, *, workload: str, as_json: bool, **given: Any) -> None:
    """Measure what each role of a workload needs of a GPU, and print what to write into its workload.toml.

    It runs one replica of each role for a minute, whatever number its file has, each with all that its GPU has, and on
    a GPU of its own where there are enough. It waits in the queue for its turn; Ctrl-C ends it. NEEDED is what a
    framework itself had allocated, TAKEN what the driver showed, CONTEXT what it took beside the framework. What to ask
    for is 5 % above what was needed, up to the next 64 MiB. Options that fit does not know are the workload's own.

    Example: gpusched fit snake --time 2m
    """
    from gpusched.api.fitting import begin

    options = own_options(workload, context.args, "gpusched fit {}")
    with noting_stop_requests() as requests:  # from before it is queued: what has begun is stopped
        run = begin(workload, options=options, **given)
        try:
            state = _follow(run, requests, quiet=as_json).state
        except BaseException:
            with suppress(GpuschedError):
                run.job.stop()
            raise
    if requests and state is JobState.CANCELLED:
        print(f"{run.job.id} was stopped, and nothing is measured", file=sys.stderr)
        raise SystemExit(_INTERRUPTED)
    found = run.result()
    if as_json:
        from msgspec.json import encode
        from msgspec.structs import asdict

        report = {"workload": found.workload.name, "job": found.job, "seconds": found.seconds, "toml": found.toml}
        report |= {"progress": found.status.progress}
        print(encode(report | {"roles": [asdict(one) for one in found.roles]}).decode())
    else:
        show(lambda width: draw_fit(found.workload, found.roles, found.status, width), sys.stdout)


def _follow(run: "FitRun", requests: list[int], *, quiet: bool) -> JobStatus:
    """Show how far the run is until it has ended; return how it has."""
    live, shown = not is_plain(sys.stderr), ""
    for moment in moments(run.job, requests):
        text = "" if quiet else progress(moment.status, run.seconds, time.time(), live=live)
        if text and text != shown:
            shown = text
            if live:
                replace_line(text, sys.stderr)
            else:
                print(text, file=sys.stderr, flush=True)
    if live:
        replace_line("", sys.stderr)
    return moment.status
