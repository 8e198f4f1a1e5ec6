"""What a supervisor is told to run, once and for all: the value in a job's spec.json. No I/O, no clock."""

import msgspec

from gpusched.model.plan import ReplicaSpec
from gpusched.model.workload import Restart

__all__ = ["Backoff", "JobSpec", "ProcessIdentity"]


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One process of this boot: its pid, and when it began in clock ticks since boot."""

    pid: int
    start: int


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before a restart, in seconds: `first_s`, doubled each time in a row, `longest_s` at the most.

    A replica that ran for `stable_s` starts counting anew.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    stable_s: float = 60.0


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job, expanded. `restart` has a rule per role; a role without one gets the default.

    `leader` is the role whose end ends the job. `counts` are the plan's replicas per device. `launcher` is the process
    that the job must not outlive; None: it outlives whoever started it. `created` in Unix seconds. The replicas' `env`
    is a difference to the environment that the supervisor is started in, and holds no secret: spec.json is kept.
    """

    id: str
    workload: str
    replicas: tuple[ReplicaSpec, ...]
    restart: dict[str, Restart] = {}
    leader: str | None = None
    stop_grace_s: float = 10.0
    backoff: Backoff = Backoff()
    counts: tuple[int, ...] = ()
    simulated: bool = False
    machine: str = ""
    launcher: ProcessIdentity | None = None
    created: float = 0.0
