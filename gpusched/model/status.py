"""States, exit reasons with their texts, and what others see of a job.

Legal moves between states belong to the supervisor's machine.
"""

import signal
from enum import StrEnum
from typing import Final, Literal

import msgspec
from msgspec.structs import asdict, replace

from gpusched.model.idle import IDLE_END
from gpusched.model.plan import DeviceShare
from gpusched.model.usage import Usage

__all__ = [
    "ENDED",
    "JOB_TERMINAL",
    "REPLICA_TERMINAL",
    "ArrayStatus",
    "ExitKind",
    "ExitReason",
    "JobState",
    "JobStatus",
    "JoinedHost",
    "JoinedJob",
    "ReplicaState",
    "ReplicaStatus",
    "as_listed",
    "as_lost",
    "exit_text",
    "fault_of",
    "is_idle_end",
    "is_out_of_time",
    "ran_s",
    "signal_name",
    "waited_s",
]


class ReplicaState(StrEnum):
    """pending -> starting -> running -> stopping -> exited; a crash goes to backoff or failed."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    EXITED = "exited"
    FAILED = "failed"


class JobState(StrEnum):
    """queued -> starting -> running -> stopping -> one of the four ends."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


REPLICA_TERMINAL: Final = frozenset({ReplicaState.EXITED, ReplicaState.FAILED})
JOB_TERMINAL: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST})
ENDED: Final = {
    JobState.SUCCEEDED: "has succeeded",
    JobState.FAILED: "has failed",
    JobState.CANCELLED: "was cancelled",
    JobState.LOST: "is lost",
}
"""Texts for the states of a job that is over."""

_AT_FAULT: Final = ("oom", "overrun", "spawn-failed", "crashed", "signalled")

ExitKind = Literal["completed", "crashed", "signalled", "oom", "overrun", "spawn-failed", "stopped", "lost"]


class ExitReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a replica ended. `code` belongs to crashed, `signal` to signalled, `message` to spawn-failed and overrun.

    The `message` of a crashed one is the last line that it wrote, printable and short; None where it wrote nothing.
    An oom has a `signal` if the kernel's killer sent it, a `code` if a framework found no memory on its device; with a
    `message` it was not the device's memory but the one that is named there. A stopped one has either, or none for a
    command that ended in peace, if it was attached: then a process waits for its exit code.
    """

    kind: ExitKind
    code: int | None = None
    signal: int | None = None
    message: str | None = None

    @property
    def lacks_device_memory(self) -> bool:
        """Whether its device, or its limit there, had no more memory for it."""
        return self.kind == "oom" and self.signal is None and self.message is None


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as others see it. `since`: when the state began, `retry_at`: when a backoff ends, in Unix seconds.

    `further`: what it has beside its first device. `warning`: what ails it while it runs, such as too much memory.
    `ready`: when its process reported that it has begun its work, in Unix seconds; None before that, and for a command
    that never does. `node`: the host of a cluster that it runs on, whose `pid` and devices these are; None: this host.
    `usage`: what it used, an entry for each of its latest attempts, the last of which may still run.
    """

    name: str
    role: str
    state: ReplicaState = ReplicaState.PENDING
    pid: int | None = None
    started: float | None = None
    device_index: int | None = None
    device_uuid: str | None = None
    limit_mib: int = 0
    share_mib: int = 0
    used_mib: int | None = None
    restarts: int = 0
    exit: ExitReason | None = None
    since: float = 0.0
    retry_at: float | None = None
    warning: str | None = None
    log: str | None = None
    further: tuple[DeviceShare, ...] = ()
    ready: float | None = None
    node: str | None = None
    usage: tuple[Usage, ...] = ()

    @property
    def all_shares_mib(self) -> int:
        """What it has on all its devices together, in MiB."""
        return self.share_mib + sum(share.share_mib for share in self.further)


class JoinedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host whose actors feed a job, as the job's learner sees it: `connected` of its `actors` are there now.

    `batches` and `bytes` are what they have sent. `address` is where they come from, "" if that is unknown.
    """

    host: str
    actors: int = 0
    connected: int = 0
    batches: int = 0
    bytes: int = 0
    address: str = ""


class JoinedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a job works for whose replicas are actors of a `job` elsewhere, which calls them those of `host`.

    `host` is empty where both are nodes of one launch.
    """

    endpoint: str
    job: str
    host: str = ""


class ArrayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How many members an array has: in all, that have not begun, that live, and that have ended, by how they did.

    `at_most`: as many may live at the same time, None: as many as fit.
    """

    count: int
    waiting: int = 0
    live: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    at_most: int | None = None

    @property
    def ended(self) -> int:
        """How many have ended, in whatever way."""
        return self.succeeded + self.failed + self.cancelled + self.lost


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job as others see it.

    `supervisor_start` (clock ticks since boot) and `boot_id` distinguish the supervisor's pid from a later, equal one.
    `attempt` counts the starts of the whole job. `note`: what it does before it can do more, such as preloading a
    module. `listen`: where its learner takes actors of other hosts, None if it takes none; `joined`: those hosts, in
    the order in which they came. `joins`: whose actors its replicas are, None for a job that joins none. `engine`: what
    cluster runs it, None: this host. What only the daemon knows has the default elsewhere: `name`, `priority`, `held`,
    `group`, `after`, `at` and `time_limit_s` as submitted, `cwd` its directory, `command` the argv of one that is no
    workload's, `why` a queued job waits, in numbers. `array`: how many members an array has, None for another
    job; `parameters`: the values of a member's, or the names of an array's, each without a value. `user`: whose
    job it is, None where that is not known. `idle_since`: since when its devices do nothing, in Unix seconds; None
    where they do, or that is not known. `idle_end_s` as submitted.
    """

    id: str
    workload: str
    state: JobState
    counts: tuple[int, ...]
    replicas: tuple[ReplicaStatus, ...]
    run_dir: str
    simulated: bool = False
    machine: str = ""
    created: float = 0.0
    ended: float | None = None
    message: str | None = None
    note: str | None = None
    supervisor_pid: int | None = None
    supervisor_start: int | None = None
    boot_id: str | None = None
    progress: dict[str, object] | None = None
    attempt: int = 0
    started: float | None = None
    name: str | None = None
    group: str | None = None
    command: tuple[str, ...] = ()
    cwd: str | None = None
    priority: int = 0
    held: bool = False
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    at: float | None = None
    time_limit_s: float | None = None
    why: str | None = None
    listen: str | None = None
    joined: tuple[JoinedHost, ...] = ()
    joins: JoinedJob | None = None
    engine: str | None = None
    array: ArrayStatus | None = None
    parameters: dict[str, str] = {}
    user: str | None = None
    idle_since: float | None = None
    idle_end_s: float | None = None

    @property
    def device_indices(self) -> list[int]:
        """The indices of all devices that its replicas have, in order."""
        found = {one.device_index for one in self.replicas if one.device_index is not None}
        return sorted(found | {share.device_index for one in self.replicas for share in one.further})


def ran_s(job: JobStatus, now: float) -> float | None:
    """Return for how many seconds a job has run, or ran, since its last start; None if it did not, or none saw it."""
    over = job.state in JOB_TERMINAL
    if job.state is JobState.QUEUED or job.started is None or (over and job.ended is None):
        return None
    return max(0.0, (job.ended if over and job.ended is not None else now) - job.started)


def waited_s(job: JobStatus, now: float) -> float | None:
    """Return for how many seconds a job waits, or waited, from its submission until its last start, or its end."""
    if job.state is JobState.QUEUED:
        return max(0.0, now - job.created)
    until = job.started or job.ended
    return None if until is None or not job.created else max(0.0, until - job.created)


def as_listed(job: JobStatus, now: float) -> dict[str, object]:
    """Return a job's fields with its durations, as `ps --json` lists it (docs/reference.md); ready for msgspec."""
    return asdict(job) | {"waited_s": waited_s(job, now), "ran_s": ran_s(job, now)}


def as_lost(status: JobStatus, message: str, ended: float | None = None) -> JobStatus:
    """Return `status` as that of a job whose supervisor is gone; a status that is terminal stays as it is.

    `ended` is in Unix seconds, or None where no process saw the end.
    """
    if status.state in JOB_TERMINAL:
        return status
    replicas = tuple(
        one
        if one.state in REPLICA_TERMINAL
        else replace(one, state=ReplicaState.EXITED, pid=None, retry_at=None, exit=ExitReason(kind="lost"))
        for one in status.replicas
    )
    return replace(status, state=JobState.LOST, replicas=replicas, message=message, ended=ended)


def exit_text(reason: ExitReason) -> str:
    """Return an exit reason for people: `crashed with code 1: ValueError`, `killed by SIGSEGV`, `ran out of …`."""
    match reason.kind:
        case "crashed":
            text = f"crashed with code {reason.code}{f': {reason.message}' if reason.message else ''}"
        case "signalled":
            text = f"killed by {signal_name(reason.signal)}"
        case "oom" if reason.signal is not None:
            text = "killed by the kernel because memory ran out (OOM)"
        case "oom":
            text = f"ran out of {reason.message or 'memory on its device'}"
        case "overrun":
            text = f"stopped because it {reason.message or 'used more memory than its share'}"
        case "spawn-failed":
            text = f"could not start: {reason.message}"
        case kind:
            text = kind
    return text


def fault_of(job: JobStatus) -> ExitReason | None:
    """Return why the job failed: the end of the first replica that failed, the plainest kind of end first."""
    ends = [one.exit for one in job.replicas if one.exit is not None and one.state is ReplicaState.FAILED]
    ends = ends or [one.exit for one in job.replicas if one.exit is not None and one.exit.kind in _AT_FAULT]
    return min(ends, key=lambda end: _AT_FAULT.index(end.kind) if end.kind in _AT_FAULT else 9, default=None)


def is_out_of_time(job: JobStatus) -> bool:
    """Return whether a job that failed for no fault of a replica ran into its time limit."""
    if job.time_limit_s is None or job.started is None or job.ended is None or is_idle_end(job):
        return False
    return job.ended - job.started >= job.time_limit_s


def is_idle_end(job: JobStatus) -> bool:
    """Return whether a job that failed was ended because its devices did nothing."""
    return job.state is JobState.FAILED and (job.message or "").startswith(IDLE_END)


def signal_name(number: int | None) -> str:
    """Return `SIGSEGV`, and `signal 40` for one that has no name."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"  # the real-time signals have no name
