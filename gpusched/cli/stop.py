"""`gpusched stop`: end jobs, in order or at once, and wait until they have ended."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from gpusched.api import queue
from gpusched.cli.options import Option
from gpusched.cli.selecting import Group, JobNames, Last, State, meant, nothing_meant
from gpusched.errors import UsageError

if TYPE_CHECKING:
    from gpusched.model.status import JobStatus

__all__ = ["stop"]


def stop(
    jobs: JobNames = None,
    last: Last = False,
    state: State = None,
    group: Group = None,
    everything: Annotated[bool, Option("All jobs: those that run and those that wait.", ("--all",))] = False,
    kill: Annotated[bool, Option("At once, without time to save their work.", ("--kill",))] = False,
    no_wait: Annotated[bool, Option("Do not wait until they have ended.", ("--no-wait",))] = False,
    as_json: Annotated[bool, Option("Print the jobs as JSON.", ("--json",))] = False,
) -> None:
    """Stop jobs: SIGTERM to their processes, SIGKILL after their grace. One that waits is taken out of the queue.

    Ctrl-C ends the waiting, not the stopping.

    Example: gpusched stop snake-4
    """
    from gpusched.cli.queue_answers import print_change, print_jobs

    if everything and (last or state is not None or group is not None):
        raise UsageError("--all excludes --last, --state and --group", "give one of them")
    names = tuple(jobs or ()) if everything else meant(jobs, last=last, state=state, group=group)
    stopped = queue.stop(names, everything=everything, kill=kill) if names or everything else queue.Change()
    ids = [job.id for job in stopped.jobs]
    if not ids and not as_json:
        print(nothing_meant(state, group))
    if not no_wait:
        _wait(stopped.jobs, as_json=as_json)
    elif not as_json:
        print_change(stopped, as_json=False)
    if as_json:
        print_jobs(queue.find_jobs(ids).jobs if ids else ())


def _wait(jobs: "Sequence[JobStatus]", *, as_json: bool) -> None:
    """Wait until the jobs have ended, and print each; `jobs` as they were before. Ctrl-C is KeyboardInterrupt."""
    from gpusched.model.status import JOB_TERMINAL
    from gpusched.render.job_format import end_line

    over = {job.id for job in jobs if job.state in JOB_TERMINAL}
    left = [job.id for job in jobs]
    try:
        for job in queue.as_completed(tuple(left)):
            left.remove(job.id)
            if not as_json:
                line = end_line(job)
                before = f"{job.id} had ended before: {line.removeprefix(f'{job.id} ')}"
                print(before if job.id in over else line, flush=True)
    except KeyboardInterrupt:
        print(f"still stopping: {', '.join(sorted(left))}; at once: gpusched stop --kill", file=sys.stderr)
        raise
