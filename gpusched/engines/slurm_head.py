"""The batch script of a group, on the first of its nodes: `python -m gpusched.engines.slurm_head`, told on its input.

It makes the keys of this attempt, decides where the learner listens, and runs the nodes as the replicas of a job of
this host (engines/steps.py), so that a node which fails is started again, with a pause that doubles.
"""

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.control.place import private_directory
from gpusched.engines.attend import Requests, attend
from gpusched.engines.base import Seen
from gpusched.engines.keyring import fresh_keys
from gpusched.engines.local import Asked, Local
from gpusched.engines.slurm_commands import address_of, look_up, nodes_of_job, patiently
from gpusched.engines.slurm_words import FORMAT, STOP_ASKED, HeadOrder, makes_room
from gpusched.engines.steps import PER_ATTEMPT, StepSettings, steps_workload, write_order
from gpusched.engines.wish import Wish
from gpusched.errors import GpuschedError, HostFault
from gpusched.files import make_private
from gpusched.model.group import Group, NodeOrder
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.settings import Settings, load_settings
from gpusched.supervisor.jobdir import JobDirectory, complete, last_lines
from gpusched.supervisor.tcp import Tcp

__all__ = ["main"]

_STEP: Final = "gpusched.engines.slurm_step"
_ROOM_S: Final = 600.0


def main() -> int:
    """Run the group of the order on the standard input to its end; see the module."""
    requests = Requests()
    try:
        told = msgspec.json.decode(sys.stdin.buffer.read(), type=HeadOrder)
        return _run(told, load_settings(os.environ), requests)
    except (GpuschedError, msgspec.MsgspecError) as error:
        print(error, file=sys.stderr)
        return error.exit_code if isinstance(error, GpuschedError) else HostFault.exit_code


def _run(told: HeadOrder, settings: Settings, requests: Requests) -> int:
    job = JobDirectory(Path(told.directory)) if told.directory else _own_directory(told, settings)
    if not job.logs.is_dir():
        hint = "the state directory must be one that all nodes share, such as in your home"
        raise HostFault(f"{job.path} is not there on {socket.gethostname()}", hint)
    if _is_over(job):
        raise HostFault(f"{job.path.name} is over: nothing is started for it", "launch it anew")
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    order = NodeOrder(
        group=told.group,
        job=told.job or job.path.name,
        directory=str(job.path),
        number=0,
        learner=_learner().endpoint,
        incarnation=restarts * PER_ATTEMPT,
        keys=fresh_keys(job.path.name),
    )
    private_directory(settings.runtime_dir)
    path = settings.runtime_dir / "orders" / f"{os.environ['SLURM_JOB_ID']}.json"
    write_order(path, order)
    head = JobDirectory(job.path / "head" / str(restarts) / order.job)
    make_private(head.path)
    complete(head)
    try:
        seen = _attend(job, head, order.group, str(path), settings, requests)
    finally:
        path.unlink(missing_ok=True)
    why = last_lines(head.log("first.0"), 1) if seen.stage == "failed" else []
    print(f"{order.job}: {seen.stage}{''.join(f', {line}' for line in why or [seen.words] if line)}", flush=True)
    if requests.count and not (job.path / STOP_ASKED).exists():
        _make_room()
    return 0 if seen.stage == "succeeded" else GpuschedError.exit_code


def _attend(
    job: JobDirectory, head: JobDirectory, group: Group, order: str, settings: Settings, requests: Requests
) -> Seen:
    """Run the nodes until the first has ended, or the job that this one is for is over: it may have been killed."""
    workload = steps_workload(group, head.path.name, _STEP)
    options = msgspec.json.encode(StepSettings(order=order))
    engine = Local(head, Asked(workload=workload, options=options, wish=Wish(machine="cpu")), settings)
    engine.submit()
    return attend(engine, requests, lambda _: not _is_over(job), every_s=1.0)


def _is_over(job: JobDirectory) -> bool:
    """Return whether nobody waits for this job any more. One whose supervisor was lost may be found again."""
    with suppress(HostFault):
        status = job.read_status()
        return status is not None and status.state in JOB_TERMINAL and status.state is not JobState.LOST
    return False


def _make_room() -> None:
    """Stay for a while where Slurm will end this job or queue it again: to end first would be to fail."""
    deadline = time.monotonic() + _ROOM_S
    with suppress(HostFault):
        while time.monotonic() < deadline:
            lines = look_up([f"--jobs={os.environ['SLURM_JOB_ID']}"], FORMAT)
            if not lines or not makes_room(lines[-1]):
                return
            time.sleep(1)


def _own_directory(told: HeadOrder, settings: Settings) -> JobDirectory:
    """Return the directory of a job that was submitted by hand, the same if Slurm begins it anew. Raises HostFault."""
    name = f"{told.group.workload.name}-slurm-{os.environ['SLURM_JOB_ID']}"
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
