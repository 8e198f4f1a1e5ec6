"""The messages between command line and daemon: one typed request, one typed answer, in msgpack, with bounds.

A message on the wire is three frames: a protocol number as one byte, the number of the request (8 bytes, chosen by the
client, returned with the answer), and the msgpack of one of the structs below. The first frame never changes its
meaning, and Refused never loses a field, so that any two versions notice that they differ.
"""

from typing import Annotated, Final

import msgspec

from gpusched.control.usage_messages import FindMeasured, JobId, JobIds, ListUsage, Measured, Usages
from gpusched.model.array import MOST_MEMBERS
from gpusched.model.idle import Idle
from gpusched.model.job import ProcessAttributes, QueueChange, Submission
from gpusched.model.queue_group import GroupChange, GroupName, GroupStatus
from gpusched.model.selection import Selection
from gpusched.model.status import JobStatus
from gpusched.model.why import Why

__all__ = [
    "MAX_MESSAGE",
    "MOST_ENDED",
    "PROTOCOL",
    "Answer",
    "Await",
    "ChangeGroup",
    "Done",
    "Drain",
    "Drained",
    "Edit",
    "Explain",
    "Explained",
    "Extend",
    "Groups",
    "Hold",
    "Jobs",
    "ListGroups",
    "ListJobs",
    "Ping",
    "Pong",
    "Refused",
    "Remove",
    "Removed",
    "Request",
    "Rerun",
    "Resume",
    "Select",
    "Selected",
    "Shutdown",
    "Stop",
    "Submit",
    "Submitted",
    "Turn",
    "TurnIs",
    "Undelivered",
]

PROTOCOL: Final = 15
MAX_MESSAGE: Final = 8 << 20
"""Bytes of one message: an environment may have 2 MiB (ARG_MAX), and `Jobs` of thousands of replicas some more."""

MOST_ENDED: Final = 100
"""How many jobs that ended one answer holds: 100 take the daemon some 5 ms and 0.5 MiB, which its heap keeps."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=60)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Are you there, and who are you?"""


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """Take this job into the queue: Submitted once it is on disk, or Refused, such as for what never fits."""

    job: Submission


class ListJobs(msgspec.Struct, frozen=True, kw_only=True, tag="list-jobs"):
    """The jobs `ids`, or with none named all that live and the `ended` latest that ended.

    With `skip`, those that ended after these many latest, and none that live: so all of them can be had in turn.
    `ended_arrays`: the arrays that ended within the last hour, too.
    """

    ids: JobIds = ()
    ended: Annotated[int, msgspec.Meta(ge=0, le=MOST_ENDED)] = 20
    skip: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0
    ended_arrays: bool = False


class Select(msgspec.Struct, frozen=True, kw_only=True, tag="select"):
    """Which jobs are meant? Answered with Selected."""

    jobs: Selection


class Turn(msgspec.Struct, frozen=True, kw_only=True, tag="turn"):
    """Has the turn of the attached job come? Answered when it has, when the job is over, or after `wait_s`."""

    id: JobId
    wait_s: Seconds = 2.0


class Await(msgspec.Struct, frozen=True, kw_only=True, tag="await"):
    """Answered with Jobs when all of `ids` have ended, or after `wait_s`."""

    ids: JobIds
    wait_s: Seconds = 2.0


class Explain(msgspec.Struct, frozen=True, kw_only=True, tag="explain"):
    """Why does this job wait, and until when? Answered with what has been found out after `wait_s` at the latest."""

    id: JobId
    wait_s: Seconds = 10.0


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Stop the jobs `ids`, or all with `everything`; at once if `kill`. A queued one is cancelled.

    `why`: what such a one has as its message; None: that `gpusched stop` was typed.
    """

    ids: JobIds = ()
    everything: bool = False
    kill: bool = False
    why: Text | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True, tag="hold"):
    """Keep the queued jobs `ids` from starting, or if not `held` let them start when their turn comes."""

    ids: JobIds
    held: bool = True


class Edit(msgspec.Struct, frozen=True, kw_only=True, tag="edit"):
    """Change the queued jobs `ids`, or none of them if one cannot be changed so."""

    ids: JobIds
    change: QueueChange


class Remove(msgspec.Struct, frozen=True, kw_only=True, tag="remove"):
    """Forget jobs that have ended, and move their directories away; see daemon.removal."""

    ids: JobIds
    keep_results: bool = False


class Rerun(msgspec.Struct, frozen=True, kw_only=True, tag="rerun"):
    """Queue a new job that is as `id` was, with what is changed of its terms; answered as Submit is.

    A job that has ended has no environment any more: the new one has `environ` and `attributes`.
    """

    id: JobId
    change: QueueChange = QueueChange()
    environ: dict[str, str] = {}
    attributes: ProcessAttributes | None = None
    token: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag="resume"):
    """Queue the ended array `id` again, for those members that did not succeed or never began; answered as Submit is.

    `environ` and `attributes` are its new ones: of a job that has ended none is kept. `token`: see Submission.
    """

    id: JobId
    environ: dict[str, str] = {}
    attributes: ProcessAttributes | None = None
    token: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Extend(msgspec.Struct, frozen=True, kw_only=True, tag="extend"):
    """Let the open array `id` have `count` members in all, if that is more than it has.

    `close`: there come no more. Then members that have not begun are left out from `count` on.
    """

    id: JobId
    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_MEMBERS)] = 0
    close: bool = False


class ListGroups(msgspec.Struct, frozen=True, kw_only=True, tag="list-groups"):
    """The group of that name, or all. Answered with Groups."""

    name: GroupName | None = None


class ChangeGroup(msgspec.Struct, frozen=True, kw_only=True, tag="change-group"):
    """Change what is set of a group, whether it has jobs or not. Answered with Groups once it is on disk."""

    name: GroupName
    change: GroupChange


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag="drain"):
    """Place nothing new on this device (an index, or the start of a uuid), or with no reason use it again."""

    device: Text
    reason: Text | None = None


class Shutdown(msgspec.Struct, frozen=True, kw_only=True, tag="shutdown"):
    """End; running jobs go on."""


class Undelivered(msgspec.Struct, frozen=True, kw_only=True):
    """Notifications that failed at least once: `waiting` are tried again, `given_up` are not.

    `since`: when the oldest event happened, in Unix seconds. `reason`: why the latest try failed.
    """

    waiting: int
    given_up: int
    since: float
    reason: str


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The daemon's identity and state. `started` in Unix seconds; `malformed` counts messages that were dropped.

    `undelivered`: notifications that could not be delivered, None if there are none.
    """

    version: str
    pid: int
    started: float
    state_dir: str
    queued: int
    running: int
    malformed: int
    problems: tuple[str, ...] = ()
    undelivered: Undelivered | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True, tag="submitted"):
    """The job is on disk, under this id. `job`: as it was then, so that nothing is asked for after the answer."""

    id: str
    job: JobStatus


class Jobs(msgspec.Struct, frozen=True, kw_only=True, tag="jobs"):
    """What was asked for: those that live, oldest first, then those that ended, latest first. `idle`: with no ids."""

    jobs: tuple[JobStatus, ...]
    idle: Idle | None = None


class Selected(msgspec.Struct, frozen=True, kw_only=True, tag="selected"):
    """The ids of the jobs that are meant, in the order of their names; of each those that live first."""

    ids: tuple[str, ...]


class Groups(msgspec.Struct, frozen=True, kw_only=True, tag="groups"):
    """Groups of the queue, by name."""

    groups: tuple[GroupStatus, ...]


class Removed(msgspec.Struct, frozen=True, kw_only=True, tag="removed"):
    """The jobs that are no more, and why each of the others stays. `arrays` stay until their members are removed."""

    ids: tuple[str, ...]
    kept: dict[str, str] = {}
    arrays: tuple[str, ...] = ()


class TurnIs(msgspec.Struct, frozen=True, kw_only=True, tag="turn-is"):
    """`come`: start it now, from its `job.run_dir`. Otherwise `job.why` is the reason, or the state is terminal."""

    come: bool
    job: JobStatus


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """It was done; `report` has a line for each job, such as `snake-4 is stopping`."""

    report: tuple[str, ...] = msgspec.field(default=(), name="told")


class Drained(msgspec.Struct, frozen=True, kw_only=True, tag="drained"):
    """The devices that take nothing new, by uuid, each with its reason; `names` is what people call them."""

    devices: dict[str, str]
    names: dict[str, str] = {}


class Explained(msgspec.Struct, frozen=True, kw_only=True, tag="explained"):
    """What is known of a job's start."""

    why: Why


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """It was not done: an error's `code` (errors.py), message and hint. `version` and `protocol` are the daemon's."""

    code: str
    message: str
    hint: str = ""
    version: str = ""
    protocol: int = PROTOCOL


Request = (
    Ping
    | Submit
    | ListJobs
    | ListUsage
    | FindMeasured
    | Select
    | Turn
    | Await
    | Explain
    | Stop
    | Hold
    | Edit
    | Rerun
    | Resume
    | Extend
    | Remove
    | ListGroups
    | ChangeGroup
    | Drain
    | Shutdown
)
Answer = (
    Pong
    | Submitted
    | Jobs
    | Usages
    | Measured
    | Selected
    | Removed
    | TurnIs
    | Explained
    | Groups
    | Done
    | Drained
    | Refused
)
