"""`gpusched launch`: plan a workload, start its processes under a supervisor, and follow them to the end."""

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from gpusched import contract
from gpusched.cli.follow import counting_stop_requests, follow
from gpusched.cli.planning import ActorMemory, ExcludeGpus, Gpus, LearnerMemory, Policy, Procs, Wish, xla_variable
from gpusched.cli.screen import can_redraw
from gpusched.cli.workloads import load_workload, read_options
from gpusched.errors import HostFault, JobFailed, NotFound, UsageError
from gpusched.model.plan import Plan, Replica
from gpusched.model.status import JobState, JobStatus
from gpusched.model.workload import Workload
from gpusched.settings import Settings, load_settings
from gpusched.supervisor.jobdir import JobDirectory, create, last_lines
from gpusched.supervisor.spec import JobSpec

__all__ = ["launch"]

_INTERRUPTED: Final = 130
_LONGEST_LINE: Final = 300
_GUARD_PATIENCE_S: Final = 5.0
_RESULTS: Final = ("*.png", "*.gif", "*.csv", "*.npz", "*.h5", "tensorboard")


def launch(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help="A workload's name, or the path of its workload.toml.")],
    procs: Procs = None,
    machine: Annotated[
        str | None, typer.Option(help="Plan for a machine that is not here, and run with its devices simulated.")
    ] = None,
    gpus: Gpus = None,
    exclude_gpus: ExcludeGpus = None,
    learner_memory: LearnerMemory = None,
    actor_memory: ActorMemory = None,
    policy: Policy = "balanced",
    watch: Annotated[bool, typer.Option("--watch", help="Draw a game while it is played.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the ended job, as JSON.")] = False,
) -> None:
    """Start a workload's processes and follow them until they end; Ctrl-C stops them.

    Options that launch does not know are the workload's own: gpusched launch snake -- --help

    Example: gpusched launch snake --procs 4 --network small
    """
    loaded = load_workload(workload)
    options = read_options(loaded, context.args)
    _require_modules(loaded)
    wish = Wish(procs, machine, gpus, exclude_gpus, learner_memory, actor_memory, policy)
    settings = load_settings(os.environ)
    _require_short_paths(loaded, settings)
    with ExitStack() as until_the_end:
        with _one_at_a_time(settings.state_dir):
            plan = wish.plan(loaded, settings)
            directory = create(settings.state_dir, loaded.name)
            requests = until_the_end.enter_context(counting_stop_requests())  # before this, Ctrl-C has nothing to stop
            _start(directory, _spec(directory, loaded, options, plan, settings), watch=watch)
        if not as_json:
            _introduce(directory, plan, loaded)
        live = can_redraw() and not as_json
        status = follow(directory, lambda: _stop(directory), requests, live=live, quiet=as_json)
        _wait_for_guard(directory)
        _remove_socket(_socket(settings, directory.path))
    _report(status, directory, as_json=as_json)
    if status.state is JobState.CANCELLED:
        raise typer.Exit(_INTERRUPTED)
    if status.state is not JobState.SUCCEEDED:
        raise typer.Exit(JobFailed.exit_code)


def _require_modules(workload: Workload) -> None:
    """Say what to install before 33 processes say it in their logs. Raises HostFault."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    for module in workload.preload:
        wanted = backend if module == "tensorflow" else module
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


def _require_short_paths(workload: Workload, settings: Settings) -> None:
    """Say that the channel's socket cannot be made before 33 processes say it in their logs. Raises UsageError."""
    longest = contract.LONGEST_SOCKET_PATH
    if len(os.fsencode(_socket(settings, settings.state_dir / f"{workload.name}-99999"))) > longest:
        raise UsageError(
            f"{settings.runtime_dir}: sockets in this directory would have paths of over {longest} bytes",
            "set GPUSCHED_RUNTIME_DIR to a directory with a short path, such as /tmp/g",
        )


def _socket(settings: Settings, directory: Path) -> Path:
    """Return the path of a job's socket; two state directories may both have a snake-1."""
    mark = hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]
    return settings.runtime_dir / f"{directory.name}-{mark}.sock"


def _remove_socket(path: Path) -> None:
    """Remove what a learner leaves that was killed; the job is over, so nobody holds it."""
    for left in (path, path.with_name(f"{path.name}.lock")):
        with suppress(OSError):
            left.unlink()


def _start(directory: JobDirectory, spec: JobSpec, *, watch: bool) -> None:
    from gpusched.supervisor.start import start

    if watch:
        with suppress(OSError):  # then no game is drawn; what else fails in this directory, start tells
            (directory.path / "watched").touch()
    start(directory, spec, os.environ)


def _wait_for_guard(directory: JobDirectory) -> None:
    """Wait for the guard, which goes last: when launch returns, no process is left, unless one cannot be killed.

    Not if the directory was removed under a job that runs: it is the end of this process that ends such a job.
    """
    deadline = time.monotonic() + _GUARD_PATIENCE_S
    with suppress(ChildProcessError):
        while directory.path.exists() and os.waitpid(-1, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)


@contextmanager
def _one_at_a_time(state_dir: Path) -> Iterator[None]:
    """Hold the state directory's lock, so that two launches do not plan the same memory."""
    with ExitStack() as stack:
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = stack.enter_context((state_dir / "launch.lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            hint = "make it writable, or set GPUSCHED_STATE_DIR to another directory"
            raise HostFault(f"{state_dir}: {error.strerror}", hint) from None
        yield


def _spec(directory: JobDirectory, workload: Workload, options: bytes, plan: Plan, settings: Settings) -> JobSpec:
    from gpusched.planner import replica_specs
    from gpusched.supervisor.start import this_process

    job = directory.path.name
    counts = {role.name: role.count for role in plan.request.roles}
    endpoint = f"ipc://{_socket(settings, directory.path)}"

    def identity(replica: Replica) -> dict[str, str]:
        return contract.identity_environment(
            replica,
            job=job,
            role_count=counts[replica.role],
            endpoint=endpoint,
            run_dir=str(directory.path),
            settings=options,
        )

    return JobSpec(
        id=job,
        workload=workload.name,
        replicas=replica_specs(
            plan,
            workload,
            python=sys.executable,
            cwd=str(Path.cwd()),
            xla_variable=xla_variable(),
            identity=identity,
        ),
        restart={role.name: role.restart for role in workload.roles},
        leader=workload.leader,
        stop_grace_s=workload.stop_grace_s,
        counts=plan.counts,
        simulated=plan.inventory.simulated,
        machine=plan.inventory.host if plan.inventory.simulated else "",
        launcher=this_process(),
        created=time.time(),
    )


def _introduce(directory: JobDirectory, plan: Plan, workload: Workload) -> None:
    simulated = f" of {plan.inventory.host} (simulated)" if plan.inventory.simulated else ""
    where = f"{list(plan.counts)} on the devices{simulated}" if plan.devices else "on the CPUs of this host"
    print(f"{directory.path.name}: {len(plan.replicas)} processes, {where}")
    for warning in (*plan.warnings, *_crowded(plan), *_without_hook(plan, workload)):
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
        if plan.devices and role.count and role.memory and contract.skips_hook(role.command)
    ]


def _crowded(plan: Plan) -> list[str]:
    """A simulated machine has as many CPUs as it likes; the processes have those of this host."""
    here = len(os.sched_getaffinity(0))
    crowded = plan.inventory.simulated and len(plan.inventory.cpus) != here and len(plan.replicas) > here
    return [f"{len(plan.replicas)} processes share the {here} CPUs of this host; fewer: --procs"] if crowded else []


def _report(status: JobStatus, directory: JobDirectory, *, as_json: bool) -> None:
    if as_json:
        import json

        import msgspec

        print(json.dumps(msgspec.to_builtins(status)))
        return
    from gpusched.cli.render_launch import format_duration, plain_progress
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
