"""`gpusched launch`: plan a workload, start its processes under a supervisor, and follow them to the end."""

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from gpusched import contract
from gpusched.cli.follow import counting_stop_requests, follow
from gpusched.cli.planning import Wish, xla_variable
from gpusched.cli.workloads import load_workload, read_options
from gpusched.errors import HostFault, JobFailed, NotFound
from gpusched.model.plan import Plan, Replica
from gpusched.model.status import JobState, JobStatus
from gpusched.model.workload import Workload
from gpusched.settings import Settings, load_settings
from gpusched.supervisor.jobdir import JobDirectory, create
from gpusched.supervisor.spec import JobSpec

__all__ = ["launch"]

_INTERRUPTED: Final = 130
_RESULTS: Final = ("*.png", "*.gif", "*.csv", "*.npz", "*.h5", "tensorboard")


def launch(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help="A workload's name, or the path of its workload.toml.")],
    procs: Annotated[str | None, typer.Option(help="How many actors, or max; the learner comes on top.")] = None,
    machine: Annotated[
        str | None, typer.Option(help="Plan for a machine that is not here, and run with its devices simulated.")
    ] = None,
    gpus: Annotated[str | None, typer.Option(help="Only these devices, such as 0,2.")] = None,
    exclude_gpus: Annotated[str | None, typer.Option(help="All devices but these.")] = None,
    learner_memory: Annotated[str | None, typer.Option(help="The learner's memory, instead of its share.")] = None,
    actor_memory: Annotated[str | None, typer.Option(help="The least memory of an actor.")] = None,
    policy: Annotated[str, typer.Option(help="balanced, pack, spread or exclusive.")] = "balanced",
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
    with counting_stop_requests() as requests:
        directory, plan = _start(loaded, options, wish, settings)
        if watch:
            (directory.path / "watched").touch()
        if not as_json:
            _introduce(directory, plan, loaded)
        live = sys.stdout.isatty() and not as_json
        status = follow(directory, lambda: _stop(directory), requests, live=live, quiet=as_json)
        with suppress(ChildProcessError):
            os.wait()  # the guard, which goes last: when launch returns, no process is left
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
            hint = {
                "tensorflow": "pip install 'gpusched[tensorflow]', or 'gpusched[cuda]' with an NVIDIA GPU",
            }.get(wanted, f"install what provides the module {wanted}")
            raise HostFault(f"the workload {workload.name} needs {wanted}, which is not installed here", hint)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the package that `module` lies in is missing
        return False


def _start(workload: Workload, options: bytes, wish: Wish, settings: Settings) -> tuple[JobDirectory, Plan]:
    from gpusched.supervisor.start import start

    with _one_at_a_time(settings.state_dir):
        plan = wish.plan(workload, settings)
        directory = create(settings.state_dir, workload.name)
        start(directory, _spec(directory, workload, options, plan, settings), os.environ)
    return directory, plan


@contextmanager
def _one_at_a_time(state_dir: Path) -> Iterator[None]:
    """Hold the state directory's lock, so that two launches do not plan the same memory."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (state_dir / "launch.lock").open("w")
    except OSError as error:
        hint = "make it writable, or set GPUSCHED_STATE_DIR to another directory"
        raise HostFault(f"{state_dir}: {error.strerror}", hint) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _spec(directory: JobDirectory, workload: Workload, options: bytes, plan: Plan, settings: Settings) -> JobSpec:
    from gpusched.planner import replica_specs
    from gpusched.supervisor.start import this_process

    job = directory.path.name
    counts = {role.name: role.count for role in plan.request.roles}
    mark = hashlib.sha256(os.fsencode(directory.path)).hexdigest()[:8]  # two state directories may both have a snake-1
    endpoint = f"ipc://{settings.runtime_dir}/{job}-{mark}.sock"

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
    crowded = plan.inventory.simulated and len(plan.replicas) > here
    return [f"{len(plan.replicas)} processes share the {here} CPUs of this host"] if crowded else []


def _report(status: JobStatus, directory: JobDirectory, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        print(msgspec.json.encode(status).decode())
        return
    from gpusched.cli.render_launch import format_duration
    from gpusched.supervisor.restart import exit_text

    took = format_duration((status.ended or time.time()) - status.created)
    print(f"{status.id} {status.state} after {took}" + (f": {status.message}" if status.message else ""))
    failed = [replica for replica in status.replicas if replica.state == "failed"]
    for replica in failed[:3]:
        print(f"  {replica.name}: {exit_text(replica.exit) if replica.exit else 'failed'}")
        for line in _last_lines(Path(replica.log or ""), 6):
            print(f"    | {line}")
    found = sorted({path.name for pattern in _RESULTS for path in directory.path.glob(pattern)})
    if found:
        print(f"results: {directory.path}: {', '.join(found)}")
    print(f"logs:    {directory.logs}")


def _last_lines(path: Path, count: int) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
