"""What a supervisor is to run, once and for all: the value in a job's spec.json. No I/O, no clock."""

from collections.abc import Mapping

import msgspec

from gpusched.model.job import Network, ProcessAttributes, ProcessIdentity
from gpusched.model.plan import ReplicaSpec
from gpusched.model.workload import Restart
from gpusched.settings import LOG_CAP_MIB

__all__ = ["Backoff", "DeviceRoom", "JobSpec", "Start", "Streams"]

Streams = tuple[int, int, int]
"""Open descriptors: what a process gets as stdin, stdout and stderr."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before a restart, in seconds: `first_s`, doubled each time in a row, `longest_s` at the most.

    A replica that ran for `stable_s` counts from the start again.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    stable_s: float = 60.0


class DeviceRoom(msgspec.Struct, frozen=True, kw_only=True):
    """A device as it was planned on: its memory, and how much of that all leases together may hold. MiB."""

    total_mib: int
    most_mib: int


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job, expanded. `restart` has a rule per role; a role without one gets the default.

    `leader` is the role whose end ends the job. `counts` are the plan's replicas per device. `launcher` is the process
    that the job must not outlive; None: it outlives the one that started it. `attached`: the one replica takes the
    streams and the process group of the job's starter, as a command in a shell would. `created` in Unix seconds. The
    replicas' `env` is a difference to the environment that the supervisor is started in, and holds no secret: spec.json
    is kept. `preload` are the modules that a zygote imports once for all replicas; none: each imports for itself.
    `time_limit_s` counts from the supervisor's start. `attempt` counts the starts of the whole job, from 0.
    `network`: how it reaches other hosts, None for a job that stays on its own. `attributes` are those of its
    processes; None: what they inherit. `prepared_s` is when the attempt was written down, in seconds since boot: unlike
    the times of files, a stepped wall clock does not move it. `log_cap_mib`: how much a log may hold, in MiB; 0: any.
    `memory_options`: see execution/footprint_key.py. `rooms`: the devices that its replicas share with others, by uuid.
    `most_mib`: the largest limit that a replica may get, in MiB, by role, where its file has one. `xla_variable`: see
    environment.resource_environment. `name`, `group` and `command` are for people, as in JobStatus.
    """

    id: str
    workload: str
    name: str | None = None
    group: str | None = None
    command: tuple[str, ...] = ()
    replicas: tuple[ReplicaSpec, ...]
    restart: dict[str, Restart] = {}
    leader: str | None = None
    stop_grace_s: float = 10.0
    backoff: Backoff = Backoff()
    counts: tuple[int, ...] = ()
    simulated: bool = False
    machine: str = ""
    launcher: ProcessIdentity | None = None
    attached: bool = False
    time_limit_s: float | None = None
    attempt: int = 0
    preload: tuple[str, ...] = ()
    created: float = 0.0
    network: Network | None = None
    attributes: ProcessAttributes | None = None
    prepared_s: float = 0.0
    log_cap_mib: int = LOG_CAP_MIB
    memory_options: str = "{}"
    rooms: dict[str, DeviceRoom] = {}
    most_mib: dict[str, int] = {}
    xla_variable: str = ""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a replica, now: its whole environment, the streams that it gets, and what else it inherits."""

    spec: ReplicaSpec
    env: Mapping[str, str]
    streams: Streams
    attributes: ProcessAttributes | None = None
