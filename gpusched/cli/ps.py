"""`gpusched ps`: the jobs of the queue, those that run and those that ended lately."""

import sys
import time
from typing import Annotated, Any, Final

from gpusched.api.others import jobs_of_user
from gpusched.api.queue import find_jobs, job_ids, select
from gpusched.cli.options import Option, with_options
from gpusched.cli.queue_answers import noted
from gpusched.cli.queue_options import CONDITIONS
from gpusched.errors import UsageError

__all__ = ["ps"]

_MOST: Final = 100_000


@with_options(CONDITIONS)
def ps(
    jobs: Annotated[
        list[str] | None,
        Option(
            "Only these jobs, by id or name, or globs: 'train*'.",
            metavar="[JOB]...",
            complete=job_ids,
            argument=True,
        ),
    ] = None,
    why: Annotated[bool, Option("Under each job: what it waits for, or why it ended so.", ("--why",))] = False,
    everything: Annotated[bool, Option("All jobs that ended, not the latest only.", ("--all", "-a"))] = False,
    ended: Annotated[
        int | None,
        Option("How many that ended. [default: 20; with a condition all]", metavar="N", least=0, most=_MOST),
    ] = None,
    user: Annotated[
        str | None, Option("Jobs of this user that hold devices of this host, or of all users.", metavar="NAME|all")
    ] = None,
    as_json: Annotated[bool, Option("Print the jobs as JSON.", ("--json",))] = False,
    **given: Any,
) -> None:
    """List the jobs: those that run or wait, oldest first, then those that ended, latest first.

    PROCS: processes that run, of all. GPUS: ~0-3 are simulated ones. MEMORY: all shares, contexts included. TIME: how
    long it has run. AGE: how long ago it was submitted.

    Example: gpusched ps --why; gpusched ps --state failed --since 1d
    """
    if everything and ended is not None:
        raise UsageError("--all and --ended exclude each other", "give one of them")
    if given["last"] and (everything or ended is not None):
        raise UsageError("--last is one job: it excludes --all and --ended", "give one of them")
    conditions = {name: value for name, value in given.items() if value not in (None, False)}
    if user is not None:
        if conditions or jobs:
            raise UsageError("--user excludes jobs and conditions", "give --user alone, or with --all or --ended")
        found = noted(jobs_of_user(user, _MOST if everything else 20 if ended is None else ended))
    elif conditions:
        most = 0 if "last" in conditions else _MOST if ended is None else ended
        ids = select(jobs or (), ended=most, **conditions)
        found = find_jobs(ids).jobs if ids else ()
    else:
        found = noted(find_jobs(jobs or (), _MOST if everything else 20 if ended is None else ended))
    if as_json:
        from gpusched.cli.queue_answers import print_jobs

        print_jobs(found)
        return
    if not found:
        none = "no job runs or waits, and none has ended lately"
        print("no job matches; all: gpusched ps --all" if conditions else none)
        return
    from gpusched.render.ansi import show
    from gpusched.render.ps import draw_table

    show(lambda width: draw_table(found, time.time(), width, why=why), sys.stdout)
