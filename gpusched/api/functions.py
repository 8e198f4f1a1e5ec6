"""What the command line can do, for Python: plan, launch, submit, run, jobs, job, status.

Arguments are those of the command line (arguments.py). Nothing here prints, installs a signal handler or raises
SystemExit, and all of it can be called from several threads. All errors are of the tree in gpusched.errors; a wrong
name of an argument is a TypeError, as of any function.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Unpack

import msgspec

from gpusched.api.arguments import (
    PlanArguments,
    RunArguments,
    SubmitArguments,
    command_submission,
    plan_options,
    queue_options,
    require_known,
    with_arguments,
)
from gpusched.api.handle import Job
from gpusched.api.queue import find_jobs
from gpusched.api.validation import require_type
from gpusched.api.values import Plan, Status
from gpusched.errors import GpuschedError, UsageError
from gpusched.execution.active_python import with_active_python
from gpusched.execution.plan_options import PlanOptions, machine_meant, visible_here
from gpusched.execution.workload_options import Configured, configured_by
from gpusched.execution.workloads import load_workload
from gpusched.model.job import Submission
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.model.workload import Workload
from gpusched.settings import Settings, load_settings, machine_typed

__all__ = ["job", "jobs", "launch", "plan", "run", "status", "submit"]

Options = Mapping[str, object]
"""A workload's own options by name, such as {"network": "small"}."""

WorkloadName = str | os.PathLike[str]
"""A workload by its name, or by the path of its workload.toml."""


@with_arguments(PlanArguments)
def plan(workload: WorkloadName = "snake", *, options: Options | None = None, **given: Unpack[PlanArguments]) -> Plan:
    """Return which process would go on which GPU with how much memory, and why. Nothing is started.

    `workload` is a name or the path of a workload.toml. Raises UsageError, NeverFits and NotNow, and HostFault for a
    driver that does not work.

    Example: gpusched.plan(procs=32, machine="p3.8xlarge").counts == (3, 10, 10, 10)
    """
    require_known(given, PlanArguments)
    settings = load_settings(os.environ)
    named = _named(workload)
    chosen = configured_by(named, _own(options)).workload if options or named.conditional else named
    return Plan.of(_on_machine(plan_options(given), settings).plan(chosen, settings))


@with_arguments(PlanArguments)
def launch(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[PlanArguments]) -> Job:
    """Start a workload now or not at all, and return its job. It ends when this process ends, however that ends.

    Raises UsageError, NeverFits, NotNow (submit waits instead), and HostFault.
    """
    from gpusched.engines.local import Asked, plan_and_reserve, start_reserved
    from gpusched.execution.expand import require_short_socket

    require_known(given, PlanArguments)
    settings = load_settings(os.environ)
    chosen = _chosen(workload, options)
    wish = _on_machine(plan_options(given), settings)
    require_short_socket(chosen.workload, settings)
    asked = Asked(workload=chosen.workload, options=chosen.options, wish=wish)
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
    from gpusched.execution.expand import require_short_socket
    from gpusched.execution.submission import workload_submission

    require_known(given, SubmitArguments)
    settings = load_settings(os.environ)
    queue = queue_options(given)
    chosen = _chosen(workload, options, follows=queue.follows)
    require_short_socket(chosen.workload, settings)
    wish = _on_machine(plan_options(given), settings)
    return _queued(workload_submission(chosen.workload, chosen.options, wish, queue), settings)


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


def status(machine: str | None = None) -> Status:
    """Return this moment of the host: its devices, the jobs, and which job's lease each process uses.

    `machine`: a described machine or a file that `status --json` saved. Raises UsageError and HostFault.
    """
    from gpusched.execution.snapshot import reader_of

    require_type(machine, str | None, "machine")
    return Status.of(reader_of(machine_typed(machine), load_settings(os.environ))())


def _named(workload: WorkloadName) -> Workload:
    name = os.fspath(workload) if isinstance(workload, os.PathLike) else workload
    require_type(name, str, "workload")
    return load_workload(name)


def _own(options: Options | None) -> Options:
    require_type(options, dict[str, Any] | None, "options")
    return options or {}


def _chosen(workload: WorkloadName, options: Options | None, *, follows: bool = False) -> Configured:
    """Return the workload as it is to run here. Raises HostFault for what it needs and is not here."""
    from gpusched.execution.requirements import require_modules, require_programs

    chosen = configured_by(with_active_python(_named(workload), os.environ).workload, _own(options))
    require_modules(chosen.workload)
    if not follows:  # what goes before may still make the programs
        require_programs(chosen.workload)
    return chosen


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
