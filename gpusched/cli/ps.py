"""`gpusched ps`: the jobs of the queue, those that run and those that ended lately."""

import sys
from typing import Annotated, Final

from gpusched.api.queue import find_jobs, job_ids
from gpusched.cli.options import Option
from gpusched.cli.queue_answers import noted
from gpusched.errors import UsageError

__all__ = ["ps"]

_MOST: Final = 100_000


def ps(
    jobs: Annotated[
        list[str] | None,
        Option("Only these jobs, by id.", metavar="[JOB]...", complete=job_ids, argument=True),
    ] = None,
    why: Annotated[bool, Option("Under each job that waits, what it waits for.", ("--why",))] = False,
    everything: Annotated[bool, Option("All jobs that ended, not the latest only.", ("--all", "-a"))] = False,
    last: Annotated[int | None, Option("How many that ended. [default: 20]", metavar="N", least=0, most=_MOST)] = None,
    as_json: Annotated[bool, Option("Print the jobs as JSON.", ("--json",))] = False,
) -> None:
    """List the jobs: those that run or wait, oldest first, then those that ended, latest first.

    PROCS: processes that run, of all. GPUS: ~0-3 are simulated ones. MEMORY: all shares, contexts included. TIME: how
    long it has run. AGE: how long ago it was submitted.

    Example: gpusched ps --why
    """
    if everything and last is not None:
        raise UsageError("--all and --last exclude each other", "give one of them")
    ended = _MOST if everything else 20 if last is None else last
    found = noted(find_jobs(jobs or (), ended))
    if as_json:
        from gpusched.cli.queue_answers import print_jobs

        print_jobs(found)
        return
    from gpusched.render.ps import print_table

    print_table(found, sys.stdout, why=why)
