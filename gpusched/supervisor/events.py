"""What goes into the machine and what comes out of it: events with the time they happened, and instructions.

Times are seconds of one clock that never goes back; the machine does not know which.
"""

import msgspec

from gpusched.execution.orders import IdleOrder, OverrunOrder, StopOrder
from gpusched.model.status import ExitReason, JobState

__all__ = [
    "Ended",
    "Event",
    "FinishJob",
    "GuardGone",
    "Instruction",
    "Killed",
    "Ordered",
    "Signal",
    "Spawn",
    "SpawnFailed",
    "Spawned",
    "Strays",
    "Tick",
    "Transition",
]


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """The replica's program runs as process `pid`."""

    replica: str
    pid: int
    now: float


class SpawnFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The replica's program could not be started; `message` names it and the reason. `final`: it never can be."""

    replica: str
    message: str
    now: float
    final: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The replica's process ended: with a `code`, or by a `signal`."""

    replica: str
    now: float
    code: int | None = None
    signal: int | None = None
    oom: bool = False
    """For want of memory: the kernel's killer sent the signal, or the program reported so before it exited."""
    message: str | None = None
    """With `oom` and a code, whose memory, None: the device's; else the program's last line, or the module lacked."""
    left: bool = False
    """Other processes of the replica still run; the event comes again, without it, when they have ended."""


class Strays(msgspec.Struct, frozen=True, kw_only=True):
    """The `processes` of the job that belong to no replica any more, described; an empty text if there are none."""

    processes: str
    now: float


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """The `processes` of a replica that still ran when its grace was over have been killed; a description of them."""

    replica: str
    processes: str
    now: float


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """An order to the job, from outside or of this supervisor itself; see gpusched.execution.orders."""

    order: StopOrder | OverrunOrder | IdleOrder
    now: float


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time went by."""

    now: float


class GuardGone(msgspec.Struct, frozen=True, kw_only=True):
    """The guard died, so that no process would clean up after the supervisor: the job must not go on."""

    now: float
    message: str


class LearnerOver(msgspec.Struct, frozen=True, kw_only=True):
    """The learner that these actors joined has ended its job, or is `lost`, or `refuses` them for good.

    `unheard`: no actor here that runs has reached the learner: those that have not would wait for it to no end.
    """

    now: float
    unheard: bool = False
    lost: bool = False
    refuses: bool = False


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """Start the replica's program; answer with Spawned or SpawnFailed. The first `attempt` is 0."""

    replica: str
    attempt: int


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the replica's processes to end, or end them if `kill`. `overdue`: because their grace is over."""

    replica: str
    pid: int
    kill: bool
    overdue: bool = False


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """Write down one step of a replica, or of the job itself (`subject` "job"), from one state to the next.

    A warning is a step from a state to itself, with the `message`, as is a kill at the end of the grace.
    """

    now: float
    subject: str
    before: str
    after: str
    pid: int | None = None
    exit: ExitReason | None = None
    message: str | None = None


class FinishJob(msgspec.Struct, frozen=True, kw_only=True):
    """Every replica has ended for good, and what they left has ended or had its grace: record it, and end."""

    state: JobState


Event = Spawned | SpawnFailed | Ended | Strays | Killed | Ordered | Tick | GuardGone | LearnerOver
Instruction = Spawn | Signal | Transition | FinishJob
