"""`gpusched stop`: end jobs, in order or at once, and wait until they have ended."""

import os
import sys
from collections.abc import Collection, Sequence
from typing import Annotated

import typer

from gpusched.errors import UsageError
from gpusched.execution.daemon_link import Link, complete_job, ends, link_to_change
from gpusched.execution.listing import has_jobs
from gpusched.settings import load_settings

__all__ = ["stop"]


def stop(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Jobs by id.", autocompletion=complete_job)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs: those that run and those that wait.")] = False,
    kill: Annotated[bool, typer.Option("--kill", help="At once, without time to save their work.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until they have ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    """Stop jobs: SIGTERM to their processes, SIGKILL after their grace. One that waits is taken out of the queue.

    Ctrl-C ends the waiting, not the stopping.

    Example: gpusched stop snake-4
    """
    from gpusched.control.messages import Stop
    from gpusched.model.status import JOB_TERMINAL

    if bool(jobs) == everything:
        raise UsageError("name jobs, or --all" if everything else "no job is named", "gpusched stop JOB..., or --all")
    settings = load_settings(os.environ)
    with link_to_change(settings, jobs or ()) as link:
        found = link.jobs(jobs or ()) if jobs or has_jobs(settings) else ()
        ids, over = [job.id for job in found], {job.id for job in found if job.state in JOB_TERMINAL}
        answer = link.done(Stop(ids=tuple(jobs or ()), everything=everything, kill=kill)) if ids else ()
        if not ids and not as_json:
            print("no job runs or waits")
        if not no_wait:
            _wait(link, ids, over, as_json=as_json)
        elif not as_json:
            for line in answer:
                print(line)
        if as_json:
            from gpusched.cli.queue_change import print_jobs

            print_jobs(link.jobs(ids) if ids else ())


def _wait(link: Link, ids: Sequence[str], over: Collection[str], *, as_json: bool) -> None:
    """Wait until the jobs have ended, and print each; `over` had ended before. Ctrl-C is KeyboardInterrupt."""
    from gpusched.render.job_format import end_line

    left = set(ids)
    try:
        for job in ends(link, ids):
            left.discard(job.id)
            if not as_json:
                line = end_line(job)
                before = f"{job.id} had ended before: {line.removeprefix(f'{job.id} ')}"
                print(before if job.id in over else line, flush=True)
    except KeyboardInterrupt:
        print(f"still stopping: {', '.join(sorted(left))}; at once: gpusched stop --kill", file=sys.stderr)
        raise
