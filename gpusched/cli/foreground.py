"""A job that starts now or not at all, followed to its end in this terminal: what `launch` and `join` share."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import typer

from gpusched import contract
from gpusched.cli.follow import counting_stop_requests, follow
from gpusched.cli.planning import Wish, xla_variable
from gpusched.cli.queue_options import QueueWish
from gpusched.cli.screen import can_redraw
from gpusched.errors import HostFault, JobFailed, NotFound, UsageError
from gpusched.model.job import Network
from gpusched.model.plan import Plan
from gpusched.model.status import JobState, JobStatus
from gpusched.model.workload import Workload
from gpusched.settings import Settings
from gpusched.supervisor.jobdir import JobDirectory, create, last_lines
from gpusched.supervisor.spec import JobSpec

if TYPE_CHECKING:
    from gpusched.supervisor.lease_files import Hold as LeaseHold

__all__ = ["Asked", "require_modules", "require_no_queue", "run_here"]

_INTERRUPTED: Final = 130
_LONGEST_LINE: Final = 300
_GUARD_PATIENCE_S: Final = 5.0
_PLANNING_PATIENCE_S: Final = 30.0  # many may launch at the same time, and each of them plans for a while
_RESULTS: Final = ("*.png", "*.gif", "*.csv", "*.npz", "*.h5", "tensorboard")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to start: a workload under its `options` (JSON), where and how often, and its part in a network.

    `words`: what is to be told when it has started, beside its first line.
    """

    workload: Workload
    options: bytes
    wish: Wish
    network: Network | None = None
    words: Callable[[JobDirectory, Plan], Sequence[str]] = lambda _, __: ()


def run_here(asked: Asked, settings: Settings, *, watch: bool, as_json: bool) -> None:
    """Start the job now or not at all, and follow it to its end. Raises typer.Exit if it does not succeed."""
    from gpusched.supervisor.expand_job import job_socket

    with ExitStack() as until_the_end:
        directory, plan, hold = _commit(asked, settings)
        requests = until_the_end.enter_context(counting_stop_requests())  # before this, Ctrl-C has nothing to stop
        _start(directory, asked, plan, settings, hold, watch=watch)
        if not as_json:
            _introduce(directory, plan, asked)
        live = can_redraw() and not as_json
        status = follow(directory, lambda: _stop(directory), requests, live=live, quiet=as_json)
        _wait_for_guard(directory)
        _remove_socket(job_socket(settings, directory.path))
    _report(status, directory, as_json=as_json)
    if status.state is JobState.CANCELLED:
        raise typer.Exit(_INTERRUPTED)
    if status.state is not JobState.SUCCEEDED:
        raise typer.Exit(JobFailed.exit_code)


def require_no_queue(queue: QueueWish, what: str) -> None:
    """Raise UsageError for options of the queue, which a job in the foreground does not stand in."""
    if queue.given():
        hint = f"add -d to put the job into the queue, or leave it out: without -d {what} starts now or not at all"
        raise UsageError(f"{' and '.join(queue.given())} belongs to a job in the queue", hint)


def require_modules(workload: Workload) -> None:
    """Say what to install before 33 processes say it in their logs. Raises HostFault."""
    for wanted in contract.modules_to_preload(workload.preload, os.environ):
        if not _is_installed(wanted):
            hint = f"install what provides the module {wanted}"
            if wanted == "tensorflow":
                hint = "in gpusched's source folder: pip install '.[tensorflow]', with an NVIDIA GPU '.[cuda]'"
            raise HostFault(f"the workload {workload.name} needs {wanted}, which is not installed here", hint)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the package that `module` lies in is missing
        return False


def _remove_socket(path: Path) -> None:
    """Remove what a learner leaves that was killed; the job is over, so nobody holds it."""
    for left in (path, path.with_name(f"{path.name}.lock")):
        with suppress(OSError):
            left.unlink()


def _commit(asked: Asked, settings: Settings) -> tuple[JobDirectory, Plan, "LeaseHold"]:
    """Plan beside what is leased and take what is planned, with nobody else doing so in between.

    Raises what planning raises, and HostFault. The devices are read before: a driver that hangs holds up nobody else.
    """
    from gpusched.supervisor.lease_files import lease_directory, leases_of_plan
    from gpusched.supervisor.lease_processes import current_leases

    inventory, saved = asked.wish.look(settings)
    leases = lease_directory(settings, simulated=inventory.simulated)
    with leases.locked(_PLANNING_PATIENCE_S):
        held = (*saved, *current_leases(leases, inventory))
        plan = asked.wish.plan_now(held, asked.workload, inventory, settings)
        directory = create(settings.state_dir, asked.workload.name)
        job = directory.path.name
        return directory, plan, leases.commit(job, leases_of_plan(plan, job), directory.path)


def _start(
    directory: JobDirectory, asked: Asked, plan: Plan, settings: Settings, hold: "LeaseHold", *, watch: bool
) -> None:
    from gpusched.supervisor.start import call_off, start

    if watch:
        with suppress(OSError):  # then no game is drawn; what else fails in this directory, start tells
            (directory.path / "watched").touch()
    try:
        if asked.network is not None:
            from gpusched.supervisor.network import prepare_network

            prepare_network(directory, asked.workload.name, asked.options, asked.network)
        start(directory, _spec(directory, asked, plan, settings), os.environ)
    except BaseException:
        if call_off(directory):
            hold.withdraw()
        raise
    finally:
        hold.let_go()


def _wait_for_guard(directory: JobDirectory) -> None:
    """Wait for the guard, which goes last: when launch returns, no process is left, unless one cannot be killed.

    Not if the directory was removed under a job that runs: it is the end of this process that ends such a job.
    """
    deadline = time.monotonic() + _GUARD_PATIENCE_S
    with suppress(ChildProcessError):
        while directory.path.exists() and os.waitpid(-1, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)


def _spec(directory: JobDirectory, asked: Asked, plan: Plan, settings: Settings) -> JobSpec:
    from gpusched.supervisor.expand_job import job_spec
    from gpusched.supervisor.start import this_process

    return job_spec(
        directory,
        asked.workload,
        plan,
        options=asked.options,
        python=sys.executable,
        cwd=str(Path.cwd()),
        xla_variable=xla_variable(),
        settings=settings,
        launcher=this_process(),
        created=time.time(),
        network=asked.network,
    )


def _introduce(directory: JobDirectory, plan: Plan, asked: Asked) -> None:
    simulated = f" of {plan.inventory.host} (simulated)" if plan.inventory.simulated else ""
    where = f"{list(plan.counts)} on the devices{simulated}" if plan.devices else "on the CPUs of this host"
    count = f"{len(plan.replicas)} process{'es' if len(plan.replicas) > 1 else ''}"
    print(f"{directory.path.name}: {count}, {where}")
    for line in asked.words(directory, plan):
        print(line)
    for warning in (*plan.warnings, *_crowded(plan), *_without_hook(plan, asked.workload)):
        print(f"warning: {warning}")
    print(f"logs: {directory.logs}", flush=True)


def _stop(directory: JobDirectory) -> None:
    from gpusched.supervisor.jobdir import read_job
    from gpusched.supervisor.start import stop

    with suppress(NotFound):  # it has just ended by itself
        stop(read_job(directory.path))


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
    from gpusched.cli.job_words import format_duration, plain_progress
    from gpusched.supervisor.restart import exit_text

    took = f" after {format_duration((status.ended or time.time()) - status.created)}" if status.created else ""
    print(f"{status.id} {status.state}{took}" + (f": {status.message}" if status.message else ""))
    if status.progress:
        print(plain_progress(status.progress))
    failed = [replica for replica in status.replicas if replica.state == "failed"]
    for replica in failed[:3]:
        print(f"  {replica.name}: {exit_text(replica.exit) if replica.exit else 'failed'}")
        for line in last_lines(Path(replica.log or ""), 6):
            print(f"    | {line[:_LONGEST_LINE]}")
    found = sorted({path.name for pattern in _RESULTS for path in directory.path.glob(pattern)})
    if found:
        print(f"results: {directory.path}: {', '.join(found)}")
    print(f"logs:    {directory.logs}")
