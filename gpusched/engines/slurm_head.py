"""The batch script of a group, on the first of its nodes: `python -m gpusched.engines.slurm_head`, told on its input.

It makes the keys of this attempt, decides where the learner listens, and runs the nodes as the replicas of a job of
this host (engines/steps.py), so that a node which fails is started again, with a pause that doubles.
"""

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.engines.attend import Requests, attend
from gpusched.engines.base import Seen
from gpusched.engines.keyring import fresh_keys
from gpusched.engines.local import Asked, Local
from gpusched.engines.slurm_commands import address_of, host_names
from gpusched.engines.slurm_words import HeadOrder
from gpusched.engines.steps import PER_ATTEMPT, StepSettings, steps_workload, write_order
from gpusched.engines.wish import Wish
from gpusched.errors import GpuschedError, HostFault
from gpusched.files import make_private
from gpusched.model.group import NodeOrder
from gpusched.model.status import JOB_TERMINAL
from gpusched.settings import Settings, load_settings
from gpusched.supervisor.jobdir import JobDirectory, complete, create
from gpusched.supervisor.tcp import Tcp

__all__ = ["main"]

_STEP: Final = "gpusched.engines.slurm_step"


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
    job = JobDirectory(Path(told.directory)) if told.directory else create(settings.state_dir, told.group.workload.name)
    if not job.logs.is_dir():
        hint = "the state directory must be one that all nodes share, such as in your home"
        raise HostFault(f"{job.path} is not there on {socket.gethostname()}", hint)
    name = told.job or job.path.name
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    order = NodeOrder(
        group=told.group,
        job=name,
        directory=str(job.path),
        number=0,
        learner=_learner().endpoint,
        incarnation=restarts * PER_ATTEMPT,
        keys=fresh_keys(name),
    )
    path = settings.runtime_dir / "orders" / f"{os.environ.get('SLURM_JOB_ID', 'none')}.json"
    write_order(path, order)
    try:
        seen = _attend(job, _head_of(job, name), told, str(path), settings, requests)
    finally:
        path.unlink(missing_ok=True)
    print(f"{name}: {seen.stage}{f', {seen.words}' if seen.words else ''}", flush=True)
    return 0 if seen.stage == "succeeded" else GpuschedError.exit_code


def _head_of(job: JobDirectory, name: str) -> JobDirectory:
    """Return the directory of the job that the nodes are, here: of this attempt, since another may hold the former."""
    head = JobDirectory(job.path / "head" / name)
    with suppress(FileExistsError):
        make_private(head.path)
    complete(head)
    return head


def _attend(
    job: JobDirectory, head: JobDirectory, told: HeadOrder, order: str, settings: Settings, requests: Requests
) -> Seen:
    """Run the nodes until the first has ended, or the job that this one is for is over: it may have been killed."""
    workload = steps_workload(told.group, head.path.name, _STEP)
    asked = Asked(workload=workload, options=msgspec.json.encode(StepSettings(order=order)), wish=Wish(machine="cpu"))
    engine = Local(head, asked, settings)
    engine.submit()

    def wanted(_: Seen) -> bool:
        with suppress(HostFault):
            status = job.read_status()
            return status is None or status.state not in JOB_TERMINAL
        return True

    return attend(engine, requests, wanted, every_s=1.0)


def _learner() -> Tcp:
    """Return where the learner will listen: this node's address, and a port that is free just now."""
    node = os.environ.get("SLURMD_NODENAME") or host_names(os.environ.get("SLURM_JOB_NODELIST", ""))[0]
    with socket.socket() as probe:
        probe.bind(("", 0))
        return Tcp(address_of(node), int(probe.getsockname()[1]))


if __name__ == "__main__":
    sys.exit(main())
