"""A job that starts now or not at all, followed to its end in this terminal: what `launch` and `join` share."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
import typer

from gpusched import contract
from gpusched.cli.follow import counting_stop_requests, follow
from gpusched.engines.local import Asked, commit, start_committed, stop_gently
from gpusched.errors import HostFault, JobFailed, UsageError
from gpusched.jobs.active_python import active_python
from gpusched.jobs.directory import JobDirectory, last_lines
from gpusched.jobs.nodes import learner_directory
from gpusched.jobs.queue_options import QueueOptions
from gpusched.model.plan import Plan
from gpusched.model.status import JobState, JobStatus
from gpusched.model.workload import Workload
from gpusched.render.screen import can_redraw
from gpusched.render.text import printable
from gpusched.settings import Settings

__all__ = ["Words", "require_modules", "require_no_queue", "require_programs", "run_here"]

_INTERRUPTED: Final = 130
_LONGEST_LINE: Final = 300
_GUARD_PATIENCE_S: Final = 5.0
_RESULTS: Final = ("*.png", "*.gif", "*.csv", "*.npz", "*.h5", "tensorboard")


Words = Callable[[JobDirectory, Plan], Sequence[str]]
"""What is to be told of a job when it has started, beside its first line."""


def run_here(
    asked: Asked,
    settings: Settings,
    *,
    watch: bool,
    as_json: bool,
    words: Words = lambda _, __: (),
    first_line: str | None = None,
) -> None:
    """Start the job now or not at all, and follow it to its end. Raises typer.Exit if it does not succeed.

    `first_line`: what is started, where the plan for this host does not tell.
    """
    from gpusched.jobs.expand import job_socket
    from gpusched.jobs.learner_socket import remove_socket

    with ExitStack() as until_the_end:
        job = commit(asked, settings)
        directory = job.directory
        requests = until_the_end.enter_context(counting_stop_requests())  # before this, Ctrl-C has nothing to stop
        if watch:
            with suppress(OSError):  # then no game is drawn; what else fails in this directory, the start tells
                (directory.path / "watched").touch()
        start_committed(job, asked, settings)
        if not as_json:
            _introduce(directory, job.plan, asked.workload, words(directory, job.plan), first_line)
        live = can_redraw() and not as_json
        status = follow(directory, lambda: stop_gently(directory), requests, live=live, quiet=as_json)
        _wait_for_guard(directory)
        remove_socket(job_socket(settings, directory.path))
    _report(status, directory, as_json=as_json)
    if status.state is JobState.CANCELLED:
        raise typer.Exit(_INTERRUPTED)
    if status.state is not JobState.SUCCEEDED:
        raise typer.Exit(JobFailed.exit_code)


def require_no_queue(queue: QueueOptions, what: str) -> None:
    """Raise UsageError for options of the queue, which a job in the foreground does not stand in."""
    if queue.given():
        hint = f"add -d to put the job into the queue, or leave it out: without -d {what} starts now or not at all"
        raise UsageError(f"{' and '.join(queue.given())} belongs to a job in the queue", hint)


def require_modules(workload: Workload) -> None:
    """Say what to install before 33 processes say it in their logs, if they run by gpusched's own interpreter.

    Raises HostFault.
    """
    active = active_python(os.environ)
    if active is not None and any(active in role.command for role in workload.roles):
        return
    for wanted in contract.modules_to_preload(workload.preload, os.environ):
        if not _is_installed(wanted):
            hint = f"install what provides the module {wanted}"
            if wanted == "tensorflow":
                hint = "in gpusched's source folder: pip install '.[tensorflow]', with an NVIDIA GPU '.[cuda]'"
            raise HostFault(f"the workload {workload.name} needs {wanted}, which is not installed here", hint)


def require_programs(workload: Workload) -> None:
    """Refuse a workload whose command is no program here, before its processes fail to start. Raises HostFault."""
    from gpusched.planner import filled_in

    for role in workload.roles:
        program = filled_in(role.command[0], sys.executable)
        if role.count and shutil.which(program) is None:
            there = "/" in program and Path(program).exists()
            what = "is no program that can be executed" if there else "is no program of this host"
            where = "" if "/" in program else ", on the PATH of this shell"
            raise HostFault(
                f"the workload {workload.name}: {program!r}, the command of its role {role.name}, {what}{where}",
                f"install it, or correct the command in {workload.path or 'its workload.toml'}",
            )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the package that `module` lies in is missing
        return False


def _wait_for_guard(directory: JobDirectory) -> None:
    """Wait for the guard, which goes last: when launch returns, no process is left, unless one cannot be killed.

    Not if the directory was removed under a job that runs: it is the end of this process that ends such a job.
    """
    deadline = time.monotonic() + _GUARD_PATIENCE_S
    with suppress(ChildProcessError):
        while directory.path.exists() and os.waitpid(-1, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)


def _introduce(
    directory: JobDirectory, plan: Plan, workload: Workload, words: Sequence[str], first_line: str | None
) -> None:
    simulated = f" of {plan.inventory.host} (simulated)" if plan.inventory.simulated else ""
    where = f"{list(plan.counts)} on the devices{simulated}" if plan.devices else "on the CPUs of this host"
    count = f"{len(plan.replicas)} process{'es' if len(plan.replicas) > 1 else ''}"
    print(f"{directory.path.name}: {first_line or f'{count}, {where}'}")
    for line in words:
        print(line)
    for warning in (*plan.warnings, *_crowded(plan), *_without_hook(plan, workload)):
        print(f"warning: {printable(warning)}")
    print(f"logs: {directory.logs}", flush=True)


def _without_hook(plan: Plan, workload: Workload) -> list[str]:
    return [
        f"the command of role {role.name} has python's -I, -E or -S, which leave out the import hook that limits "
        "TensorFlow and PyTorch; let the program call gpusched.frameworks.limit_memory()"
        for role in workload.roles
        if plan.devices and role.count and (role.memory or role.devices) and contract.skips_hook(role.command)
    ]


def _crowded(plan: Plan) -> list[str]:
    """A simulated machine has as many CPUs as it likes; the processes have those of this host."""
    here = len(os.sched_getaffinity(0))
    crowded = plan.inventory.simulated and len(plan.inventory.cpus) != here and len(plan.replicas) > here
    return [f"{len(plan.replicas)} processes share the {here} CPUs of this host; fewer: --procs"] if crowded else []


def _report(status: JobStatus, directory: JobDirectory, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(msgspec.to_builtins(status)))
        return
    from gpusched.render.job_format import plain_progress, span
    from gpusched.supervisor.restart import exit_text

    took = f" after {span((status.ended or time.time()) - status.created)}" if status.created else ""
    print(f"{status.id} {status.state}{took}" + (f": {printable(status.message)}" if status.message else ""))
    if status.progress:
        print(plain_progress(status.progress))
    failed = [replica for replica in status.replicas if replica.state == "failed"]
    for replica in failed[:3]:
        print(f"  {replica.name}: {printable(exit_text(replica.exit)) if replica.exit else 'failed'}")
        for line in last_lines(Path(replica.log or ""), 6):
            print(f"    | {printable(line)[:_LONGEST_LINE]}")
    place = directory.path if status.engine is None else learner_directory(directory.path)
    found = sorted({path.name for pattern in _RESULTS for path in place.glob(pattern)})
    if found:
        print(f"results: {place}: {printable(', '.join(found))}")
    print(f"logs:    {directory.logs}")
