"""Job specs for the tests of the supervisor, quick ones: short grace, short backoff."""

import sys
import time
from pathlib import Path

from gpusched.execution.spec import Backoff, JobSpec
from gpusched.model.plan import Replica, ReplicaSpec
from gpusched.model.workload import Restart

CHILDREN = Path(__file__).parent.parent / "children"
QUICK = Backoff(first_s=0.05, longest_s=0.2, stable_s=60.0)


def python(script: str, *arguments: str) -> tuple[str, ...]:
    """The command line of a misbehaving child. -S: it starts in a third of the time."""
    return (sys.executable, "-S", str(CHILDREN / script), *arguments)


def replica(
    name: str, argv: tuple[str, ...] = ("true",), *, device: str | None = None, env: dict[str, str] | None = None
) -> ReplicaSpec:
    role, _, rank = name.rpartition(".")
    what = Replica(name=name, role=role, rank=int(rank), device_uuid=device, limit_mib=1000, context_mib=450)
    return ReplicaSpec(replica=what, argv=argv, env={} if env is None else env, cwd="/")


def job(*replicas: ReplicaSpec, job: str = "snake-1", leader: str | None = None, restarts: int = 2) -> JobSpec:
    roles = {one.replica.role for one in replicas}
    return JobSpec(
        id=job,
        workload=job.rpartition("-")[0],
        replicas=replicas,
        restart={role: Restart(max=restarts) for role in roles},
        leader=leader,
        stop_grace_s=0.3,
        backoff=QUICK,
        created=time.time(),
        prepared_s=time.clock_gettime(time.CLOCK_BOOTTIME),
    )
