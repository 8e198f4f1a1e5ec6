"""The batch script of a group, on the first of its nodes: `python -m gpusched.engines.slurm.batch < ORDER`.

It makes the keys of this attempt, decides where the learner listens, and runs the nodes as the replicas of a job of
this host (engines/cluster/node_tasks.py), so that a node which fails is started again, with a pause that doubles.
"""

import os
import socket
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from gpusched.control.place import private_directory
from gpusched.engines.base import Seen
from gpusched.engines.cluster.keyring import fresh_keys
from gpusched.engines.cluster.node_environment import keep_from_ageing, settings_of_node
from gpusched.engines.cluster.node_recorder import announce
from gpusched.engines.cluster.node_tasks import PER_ATTEMPT, StepSettings, steps_workload, write_order
from gpusched.engines.cluster.wait import Requests, wait_for_engine
from gpusched.engines.local import Local
from gpusched.engines.slurm.commands import (
    address_of,
    clear_extras,
    nodes_of_job,
    patiently,
    run,
    show_job,
    squeue,
)
from gpusched.engines.slurm.script import (
    FORMAT,
    STOP_ASKED,
    HeadOrder,
    has_to_make_room,
    is_nearly_over,
    is_there,
)
from gpusched.errors import GpuschedError, HostFault, UsageError, exit_code_of
from gpusched.execution.directory import JobDirectory, complete
from gpusched.execution.nodes import beat_file, read_node
from gpusched.execution.plan_options import PlanOptions
from gpusched.execution.submission import workload_submission
from gpusched.joining.tcp import Tcp
from gpusched.linux.files import make_private
from gpusched.linux.regular_files import last_lines
from gpusched.model.cluster_job import NodeOrder
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.settings import Settings

__all__ = ["main"]

_STEP: Final = "gpusched.engines.slurm.node_task"
_ROOM_S: Final = 180.0


def main() -> int:
    """Run the group of the order on the standard input to its end; see the module."""
    requests = Requests()
    try:
        head_order = msgspec.json.decode(sys.stdin.buffer.read(), type=HeadOrder)
        return _run(head_order, settings_of_node(os.environ), requests)
    except (GpuschedError, msgspec.MsgspecError, OSError) as error:
        print(error, file=sys.stderr)
        return exit_code_of(error)


def _run(head_order: HeadOrder, settings: Settings, requests: Requests) -> int:
    if "SLURM_JOB_ID" not in os.environ:
        raise UsageError("this is a batch script of Slurm", "submit it: sbatch FILE")
    job_id, restarts = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    job = _job(head_order, settings)
    if restarts:
        announce(job, head_order.group)
        clear_extras(job_id)
    private_directory(settings.runtime_dir)
    keep_from_ageing(settings.runtime_dir)
    order = NodeOrder(
        group=head_order.group,
        job=head_order.job or job.path.name,
        directory=str(job.path),
        number=0,
        learner=_learner().endpoint,
        incarnation=restarts * PER_ATTEMPT,
        keys=fresh_keys(job.path.name),
    )
    path = settings.runtime_dir / "orders" / f"{job_id}.json"
    write_order(path, order)
    head = JobDirectory(job.path / "head" / str(restarts) / order.job)
    make_private(head.path)
    complete(head)
    try:
        seen = _wait_for_group(job, head, head_order, str(path), settings, requests)
    finally:
        path.unlink(missing_ok=True)
    print(_result_line(order.job, head, seen), flush=True)
    if not (job.path / STOP_ASKED).exists() and (requests.count or _was_cancelled(job)):
        _make_room(job_id, beat_file(job.path))
    return seen.exit_code


def _job(head_order: HeadOrder, settings: Settings) -> JobDirectory:
    """Return the directory of the job that this one is for. Raises HostFault."""
    if not head_order.directory:
        return _own_directory(head_order, settings)
    job = JobDirectory(Path(head_order.directory))
    if not job.logs.is_dir():
        hint = "the state directory must be one that all nodes share, such as in your home"
        raise HostFault(f"{job.path} is not there on {socket.gethostname()}", hint)
    if _is_over(job, head_order):
        raise HostFault(f"{job.path.name} is over: nothing is started for it", "launch it again")
    return job


def _result_line(job: str, head: JobDirectory, seen: Seen) -> str:
    lines = last_lines(head.log("first.0"), 1) if seen.state is JobState.FAILED else []
    why = [line for line in lines if not line.startswith(("srun: ", "--- "))] or [seen.message]
    return f"{job}: {seen.state}{''.join(f', {line}' for line in why if line)}"


def _wait_for_group(
    job: JobDirectory, head: JobDirectory, head_order: HeadOrder, order: str, settings: Settings, requests: Requests
) -> Seen:
    """Run the nodes until the first has ended, or the job that this one is for is over: it may have been killed."""
    workload = steps_workload(head_order.group, head.path.name, _STEP)
    options = msgspec.json.encode(StepSettings(order=order))
    engine = Local(head, workload_submission(workload, options, PlanOptions(machine="cpu")), settings)
    engine.submit()
    beat = beat_file(job.path)

    def goes_on(_: Seen) -> bool:
        _touch(beat)
        return not _is_over(job, head_order)

    return wait_for_engine(engine, requests, goes_on, every_s=1.0)


def _is_over(job: JobDirectory, head_order: HeadOrder) -> bool:
    """Return whether no process waits for this job any more. A daemon may find a lost one again."""
    with suppress(HostFault):
        status = job.read_status()
        found_again = head_order.kept and not (job.path / STOP_ASKED).exists()
        return (
            status is not None
            and status.state in JOB_TERMINAL
            and (status.state is not JobState.LOST or not found_again)
        )
    return False


def _touch(beat: Path) -> None:
    with suppress(OSError):
        beat.touch(mode=0o600)


def _was_cancelled(job: JobDirectory) -> bool:
    """Return whether the learner's part was cancelled: Slurm signals the nodes first, the script last or never."""
    with suppress(OSError, msgspec.MsgspecError):
        return read_node(job.path, 0).status.state is JobState.CANCELLED
    return False


def _make_room(job_id: str, beat: Path) -> None:
    """Stay where Slurm will end this job or queue it again: to end first would be to fail.

    One that has to make room for another does so now, all being saved, and not only when its grace is over.
    """
    deadline = time.monotonic() + _ROOM_S
    with suppress(HostFault):
        shown = patiently(lambda: show_job(job_id))
        if has_to_make_room(shown):
            patiently(lambda: run(["scontrol", "requeue", job_id]))
        elif not is_nearly_over(shown, datetime.now()):  # noqa: DTZ005 (as scontrol shows it)
            return
        while time.monotonic() < deadline:
            lines = squeue([f"--jobs={job_id}"], FORMAT)
            if not lines or not is_there(lines[-1]):
                return
            _touch(beat)
            time.sleep(1)


def _own_directory(head_order: HeadOrder, settings: Settings) -> JobDirectory:
    """Return the directory of a job that was submitted by hand, the same if Slurm starts it again. Raises HostFault."""
    name = f"{head_order.group.workload.name}-slurm-{os.environ['SLURM_JOB_ID']}"
    directory = JobDirectory(settings.state_dir / "jobs" / name)
    try:
        make_private(directory.path)
    except OSError as error:
        raise HostFault(
            f"{directory.path}: {error.strerror}", "set GPUSCHED_STATE_DIR to a directory of yours"
        ) from None
    complete(directory)
    print(f"{name}: logs and results are in {directory.path}", flush=True)
    return directory


def _learner() -> Tcp:
    """Return where the learner will listen: this node's address, and a port that is free just now."""
    node = nodes_of_job(os.environ)[0]
    with socket.socket() as probe:
        probe.bind(("", 0))
        return Tcp(patiently(lambda: address_of(node)), int(probe.getsockname()[1]))


if __name__ == "__main__":
    sys.exit(main())
