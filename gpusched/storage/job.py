"""What the daemon knows of one job and keeps on disk: the submission, and how far it has come."""

from typing import Self

import msgspec
from msgspec.structs import replace

from gpusched.model.idle import Quiet
from gpusched.model.job import Submission
from gpusched.model.lease import Lease
from gpusched.model.status import ArrayStatus, JobState, JobStatus
from gpusched.model.usage import DeviceUse

__all__ = ["Job"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the queue. Times in Unix seconds.

    `submission` is None for a job that a `launch` in the foreground started by itself and that was found running.
    `attempt` counts the starts of the whole job. `stop_asked`: a person asked for its end, so that its end is no loss.
    `leases` is what it took when it started, whatever becomes of the file of its lease. `last` is its last status, once
    it has ended; before, the status lies in `run_dir`. The supervisor is that of the attempt that runs, should the
    status be removed. `promised`: the earliest start that was ever expected, since it is the first that has no place.
    `array`: of which array it is a member. `extended`: of an open one, from which number on its members are as old as
    that, and no older. `members`: of an array, as of its last change; an array is queued until it
    has ended. `measured`: what its replicas were seen to use of devices. `memory_options`: of a job without a
    submission, as execution/footprint_key.py has them; `whole_roles`: those of its roles whose replicas have whole
    devices. `quiet`: for how long these have done nothing, as was known then. `idle_since`: that is long enough for it
    to be idle, which was reported; in Unix seconds.
    """

    id: str
    run_dir: str
    created: float
    submission: Submission | None = None
    state: JobState = JobState.QUEUED
    held: bool = False
    stop_asked: bool = False
    attempt: int = 0
    started: float | None = None
    ended: float | None = None
    message: str | None = None
    leases: tuple[Lease, ...] = ()
    last: JobStatus | None = None
    supervisor_pid: int | None = None
    supervisor_start: int | None = None
    boot_id: str | None = None
    promised: float | None = None
    array: str | None = None
    extended: tuple[tuple[int, float], ...] = ()
    members: ArrayStatus | None = None
    measured: tuple[DeviceUse, ...] = ()
    memory_options: str = "{}"
    whole_roles: tuple[str, ...] = ()
    quiet: Quiet | None = None
    idle_since: float | None = None

    @property
    def is_array(self) -> bool:
        """Whether it stands for its members."""
        return self.submission is not None and self.submission.array is not None

    def unwatched(self) -> Self:
        """Return the job without what was known of it while it ran."""
        return replace(self, leases=(), measured=(), quiet=None, idle_since=None)
