"""A job that starts now or not at all, followed to its end in this terminal: what `launch` and `join` share."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec
import typer

from gpusched.api.handle import Job
from gpusched.cli.follow import counting_stop_requests, follow
from gpusched.engines.local import Asked, plan_and_reserve, start_reserved
from gpusched.errors import JobFailed, UsageError
from gpusched.execution.directory import JobDirectory
from gpusched.execution.nodes import learner_directory
from gpusched.execution.queue_options import QueueOptions
from gpusched.execution.requirements import launch_warnings
from gpusched.linux.regular_files import last_lines
from gpusched.model.plan import Plan
from gpusched.model.status import JobState, JobStatus, exit_text
from gpusched.model.workload import Workload
from gpusched.render.screen import can_redraw
from gpusched.render.text import printable
from gpusched.settings import Settings

__all__ = ["JobLines", "require_no_queue", "run_here"]

_INTERRUPTED: Final = 130
_LONGEST_LINE: Final = 300
_GUARD_PATIENCE_S: Final = 5.0
_RESULTS: Final = ("*.png", "*.gif", "*.csv", "*.npz", "*.h5", "tensorboard")


JobLines = Callable[[JobDirectory, Plan], Sequence[str]]
"""The lines to print when a job has started, after its first one."""


def run_here(
    asked: Asked,
    settings: Settings,
    *,
    watch: bool,
    as_json: bool,
    lines: JobLines = lambda _, __: (),
    first_line: str | None = None,
) -> None:
    """Start the job now or not at all, and follow it to its end. Raises typer.Exit if it does not succeed.

    `first_line`: what is started, where the plan for this host does not have it.
    """
    from gpusched.execution.expand import job_socket
    from gpusched.execution.learner_socket import remove_socket

    with ExitStack() as until_the_end:
        job = plan_and_reserve(asked, settings)
        directory = job.directory
        requests = until_the_end.enter_context(counting_stop_requests())  # before this, Ctrl-C has nothing to stop
        start_reserved(job, asked, settings)
        if not as_json:
            _introduce(directory, job.plan, asked.workload, lines(directory, job.plan), first_line)
        live = can_redraw() and not as_json
        handle = Job(directory.path.name, directory.path, launched=True)
        status = follow(handle, requests, live=live, quiet=as_json, frames=watch)
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


def _wait_for_guard(directory: JobDirectory) -> None:
    """Wait for the guard, which goes last: when launch returns, no process is left, unless one cannot be killed.

    Not if the directory was removed under a job that runs: it is the end of this process that ends such a job.
    """
    deadline = time.monotonic() + _GUARD_PATIENCE_S
    with suppress(ChildProcessError):
        while directory.path.exists() and os.waitpid(-1, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)


def _introduce(
    directory: JobDirectory, plan: Plan, workload: Workload, lines: Sequence[str], first_line: str | None
) -> None:
    simulated = f" of {plan.inventory.host} (simulated)" if plan.inventory.simulated else ""
    where = f"{list(plan.counts)} on the devices{simulated}" if plan.devices else "on the CPUs of this host"
    count = f"{len(plan.replicas)} process{'es' if len(plan.replicas) > 1 else ''}"
    print(f"{directory.path.name}: {first_line or f'{count}, {where}'}")
    for line in lines:
        print(line)
    for warning in launch_warnings(plan, workload):
        print(f"warning: {printable(warning)}")
    print(f"logs: {directory.logs}", flush=True)


def _report(status: JobStatus, directory: JobDirectory, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(msgspec.to_builtins(status)))
        return
    from gpusched.render.job_format import plain_progress, span

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
