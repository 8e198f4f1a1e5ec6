"""What the command line can do, for Python: launch, submit, run, join, jobs, job.

Arguments are those of the command line (arguments.py). Nothing here prints, installs a signal handler or raises
SystemExit, and all of it can be called from several threads. All errors are of the tree in gpusched.errors; a wrong
name of an argument is a TypeError, as of any function.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Unpack

import msgspec

from gpusched.api.arguments import (
    JoinArguments,
    LaunchArguments,
    RunArguments,
    SubmitArguments,
    queue_fields,
    require_no_queue,
    with_arguments,
)
from gpusched.api.commands import command_submission
from gpusched.api.handle import Job
from gpusched.api.launching import prepare
from gpusched.api.plan_arguments import require_known
from gpusched.api.queue import find_job, find_jobs
from gpusched.api.queue import submit as submit_to_queue
from gpusched.api.selecting import states_of
from gpusched.api.validation import require_type
from gpusched.api.workloads import Options, WorkloadName
from gpusched.errors import NoDaemon, NotFound
from gpusched.execution.daemon_link import Link
from gpusched.execution.listing import jobs_on_disk
from gpusched.model.selection import MOST_ENDED_SELECTED, Selection
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.settings import load_settings, queue_settings

__all__ = [
    "job",
    "jobs",
    "join",
    "launch",
    "run",
    "submit",
]

_SELECTIONS: Final = 3  # where jobs that were selected are removed before they are read


@with_arguments(LaunchArguments)
def launch(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[LaunchArguments]) -> Job:
    """Start a workload now or not at all, and return its job. It ends when this process ends, however that ends.

    On a cluster it is submitted now, and waits there for its turn. Raises UsageError, NeverFits, NotNow (submit waits
    instead), and HostFault.
    """
    require_known(given, LaunchArguments)
    return prepare(workload, options=options, **given).start()


@with_arguments(SubmitArguments)
def submit(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[SubmitArguments]) -> Job:
    """Put a workload into the queue of the daemon, which is started if there is none; it outlives this process.

    Raises UsageError, NeverFits, NoDaemon and HostFault.
    """
    return prepare(workload, options=options, begins="later", **given).submit()


@with_arguments(JoinArguments)
def join(endpoint: str, *, detach: bool = False, **given: Unpack[JoinArguments]) -> Job:
    """Run actors on this host for the learner at `endpoint`, such as "tcp://lab1:5555", and return their job.

    They end when this process ends; `detach`: they are queued with the daemon, and outlive it; the arguments of the
    queue, such as `hold`, are for these alone. Raises what launch and submit raise, NotFound if no learner answers, and
    HostFault if code or versions are not the learner's.
    """
    from gpusched.api.joining import prepare_join

    if not detach:  # before the learner is asked
        require_no_queue(queue_fields(given))
    prepared = prepare_join(endpoint, begins="later" if detach else "now", **given)
    return prepared.submit() if detach else prepared.start()


@with_arguments(RunArguments)
def run(command: Sequence[str | os.PathLike[str]], **given: Unpack[RunArguments]) -> Job:
    """Put a command into the queue: it runs on GPUs that no other job gets meanwhile, and outlives this process.

    Raises UsageError (NoProgram, NotExecutable), NeverFits, NoDaemon and HostFault.

    Example: gpusched.run(["python", "train.py"], fraction=0.4)
    """
    settings = load_settings(os.environ)
    submitted = submit_to_queue(command_submission(command, given, settings), settings=settings)
    return Job(submitted.job.id, Path(submitted.job.run_dir), warnings=submitted.warnings)


def job(job_id: str) -> Job:
    """Return the job of that id or name, or that a glob means. Raises NotFound, UsageError where it means several."""
    require_type(job_id, str, "job_id")
    (found,) = find_job(job_id).jobs
    return Job(found.id, Path(found.run_dir))


def jobs(state: str | None = None, *, ended: int = 20) -> list[Job]:
    """Return the jobs that run or wait, oldest first, then the `ended` latest of those that ended, latest first.

    `state`: only those in this state, such as "running", of "failed" the `ended` latest that failed. Raises UsageError
    for a state that there is not.
    """
    require_type(ended, Annotated[int, msgspec.Meta(ge=0)], "ended")
    states = states_of(() if state is None else (state,))
    asked = find_jobs((), ended)
    listed = asked.jobs
    if not JOB_TERMINAL.isdisjoint(states):
        listed += _latest(states, ended) if asked.problem is None else _on_disk()
    found = [one for one in {one.id: one for one in listed}.values() if state in (None, one.state)]
    live = [one for one in found if one.state not in JOB_TERMINAL]
    over = [one for one in found if one.state in JOB_TERMINAL]  # with those that ended a moment ago, in any order
    over.sort(key=lambda one: one.ended or one.created, reverse=True)
    return [Job(one.id, Path(one.run_dir)) for one in (*live, *over[:ended])]


def _latest(states: tuple[JobState, ...], ended: int) -> tuple[JobStatus, ...]:
    """Return the `ended` latest that ended in these states; without a daemon all that ended."""
    for left in reversed(range(_SELECTIONS)):
        try:
            with Link(queue_settings(os.environ)) as link:
                ids = link.select(Selection(states=states, ended=min(ended, MOST_ENDED_SELECTED)))
                return link.jobs(ids) if ids else ()
        except NoDaemon:
            break
        except NotFound:  # one was removed just now
            if not left:
                raise
    return _on_disk()


def _on_disk() -> tuple[JobStatus, ...]:
    return jobs_on_disk(queue_settings(os.environ), (), MOST_ENDED_SELECTED)
