"""What the command line can do, for Python: plan, launch, submit, run, jobs, job.

Arguments are those of the command line (arguments.py). Nothing here prints, installs a signal handler or raises
SystemExit, and all of it can be called from several threads. All errors are of the tree in gpusched.errors; a wrong
name of an argument is a TypeError, as of any function.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import msgspec

from gpusched.api.arguments import (
    LaunchArguments,
    PlanArguments,
    RunArguments,
    SubmitArguments,
    cluster_options,
    command_submission,
    plan_options,
    queue_options,
    require_known,
    with_arguments,
)
from gpusched.api.handle import Job
from gpusched.api.queue import find_jobs
from gpusched.api.validation import require_type
from gpusched.api.values import Plan
from gpusched.api.workloads import Options, WorkloadName, chosen_workload, named_workload, own_options
from gpusched.engines.cluster.options import engine_of
from gpusched.errors import GpuschedError, UsageError
from gpusched.execution.plan_options import PlanOptions, machine_meant, visible_here
from gpusched.execution.workload_options import configured_by
from gpusched.model.job import Submission
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.settings import LOCAL, Settings, load_settings

if TYPE_CHECKING:
    from gpusched.engines.local import Asked

__all__ = [
    "job",
    "jobs",
    "launch",
    "plan",
    "run",
    "submit",
]


@with_arguments(PlanArguments)
def plan(workload: WorkloadName = "snake", *, options: Options | None = None, **given: Unpack[PlanArguments]) -> Plan:
    """Return which process would go on which GPU with how much memory, and why. Nothing is started.

    `workload` is a name or the path of a workload.toml. Raises UsageError, NeverFits and NotNow, and HostFault for a
    driver that does not work.

    Example: gpusched.plan(procs=32, machine="p3.8xlarge").counts == (3, 10, 10, 10)
    """
    require_known(given, PlanArguments)
    settings = load_settings(os.environ)
    named = named_workload(workload)
    chosen = configured_by(named, own_options(options)).workload if options or named.conditional else named
    return Plan.of(_on_machine(plan_options(given), settings).plan(chosen, settings))


@with_arguments(LaunchArguments)
def launch(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[LaunchArguments]) -> Job:
    """Start a workload now or not at all, and return its job. It ends when this process ends, however that ends.

    On a cluster it is submitted now, and waits there for its turn. Raises UsageError, NeverFits, NotNow (submit waits
    instead), and HostFault.
    """
    from gpusched.engines.local import plan_and_reserve, start_reserved

    require_known(given, LaunchArguments)
    settings = load_settings(os.environ)
    asked = _asked(workload, options, given, settings, now=True)
    reserved = plan_and_reserve(asked, settings)
    started = Job(reserved.directory.path.name, reserved.directory.path, launched=True)
    try:
        start_reserved(reserved, asked, settings, spawned=_reap_later)
    except BaseException:  # such as KeyboardInterrupt: without a handle nothing may run
        with suppress(GpuschedError):
            started.stop(kill=True)
        raise
    return started


@with_arguments(SubmitArguments)
def submit(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[SubmitArguments]) -> Job:
    """Put a workload into the queue of the daemon, which is started if there is none; it outlives this process.

    Raises UsageError, NeverFits, NoDaemon and HostFault.
    """
    from gpusched.execution.submission import workload_submission

    require_known(given, SubmitArguments)
    settings = load_settings(os.environ)
    queue = queue_options(given)
    asked = _asked(workload, options, given, settings, now=False, follows=queue.follows)
    submission = workload_submission(asked.workload, asked.options, asked.wish, queue, asked.network)
    return _queued(submission, settings)


@with_arguments(RunArguments)
def run(command: Sequence[str | os.PathLike[str]], **given: Unpack[RunArguments]) -> Job:
    """Put a command into the queue: it runs on GPUs that no other job gets meanwhile, and outlives this process.

    Raises UsageError (NoProgram, NotExecutable), NeverFits, NoDaemon and HostFault.

    Example: gpusched.run(["python", "train.py"], fraction=0.4)
    """
    settings = load_settings(os.environ)
    return _queued(command_submission(command, given, settings), settings)


def job(job_id: str) -> Job:
    """Return the job of that id. Raises NotFound."""
    require_type(job_id, str, "job_id")
    (found,) = find_jobs(job_id).jobs
    return Job(found.id, Path(found.run_dir))


def jobs(state: str | None = None, *, ended: int = 20) -> list[Job]:
    """Return the jobs that run or wait, oldest first, then the `ended` latest of those that ended, latest first.

    `state`: only those in this state, such as "running". Raises UsageError for a state that there is not.
    """
    require_type(ended, Annotated[int, msgspec.Meta(ge=0)], "ended")
    if state is not None and state not in list(JobState):
        raise UsageError(f"there is no state {state!r}", f"one of {', '.join(JobState)}")
    found = find_jobs((), ended).jobs
    live = [one for one in found if one.state not in JOB_TERMINAL]
    over = [one for one in found if one.state in JOB_TERMINAL]  # with those that ended a moment ago, in any order
    over.sort(key=lambda one: one.ended or one.created, reverse=True)
    return [Job(one.id, Path(one.run_dir)) for one in (*live, *over[:ended]) if state in (None, one.state)]


def _asked(
    workload: WorkloadName,
    options: Options | None,
    given: Mapping[str, Any],
    settings: Settings,
    *,
    now: bool,
    follows: bool = False,
) -> "Asked":
    """Return the job that runs here, of a workload on a cluster the one process for it; `now` or later.

    Raises UsageError and HostFault for what it needs and is not here, and on a cluster NeverFits.
    """
    from gpusched.engines.local import Asked
    from gpusched.execution.expand import require_short_socket
    from gpusched.execution.requirements import require_modules, require_programs

    chosen = chosen_workload(workload, options)
    wish, cluster = plan_options(given), cluster_options(given)
    engine = engine_of(cluster, chosen.workload, settings)
    if engine != LOCAL:
        from gpusched.engines.cluster.prepare import cluster_job, driver_job, preflight

        return driver_job(preflight(cluster_job(engine, chosen, wish, cluster, settings), cluster, now=now))
    require_modules(chosen.workload)
    if not follows:  # what goes before may still make the programs
        require_programs(chosen.workload)
    require_short_socket(chosen.workload, settings)
    return Asked(workload=chosen.workload, options=chosen.options, wish=_on_machine(wish, settings))


def _on_machine(wish: PlanOptions, settings: Settings) -> PlanOptions:
    machine = machine_meant(wish.machine, settings)
    return wish._replace(machine=machine, visible=visible_here(os.environ, machine))


def _queued(submission: Submission, settings: Settings) -> Job:
    from gpusched.execution.daemon_link import Link

    with Link(settings, starts=True) as link:
        found = link.submit(submission)
    return Job(found.id, Path(found.run_dir))


def _reap_later(guard: int) -> None:
    """Wait in a thread for a guard that this process started, so that no zombie stays."""
    threading.Thread(target=_reap, args=(guard,), name=f"reap-{guard}", daemon=True).start()


def _reap(guard: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(guard, 0)
