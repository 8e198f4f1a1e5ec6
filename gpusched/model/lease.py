"""A share that is held now, by a live job."""

from collections.abc import Iterable

import msgspec

__all__ = ["Holder", "Lease", "holders", "shares_used"]

Holder = tuple[str | None, str, str, str]
"""A replica, as its leases name it: the user (None: ours), the job's directory, the job, the replica."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`share_mib` of the device `device_uuid`, held by a replica of a job; `pid` is None until it runs.

    A share of 0 names a further process of the same replica, which uses the replica's share; where the replica is
    unknown (of another user's job), `replica` is empty. `user` is the name of another user whose job it is, None for
    our own; `since` is when the job took it, in Unix seconds, 0 if unknown. `guard` is the process above all of the
    job's, None if unknown, and `run_dir` the job's directory: two state directories may both have a snake-1. `whole`:
    nothing else is placed on the device, however much of it the share leaves.
    """

    device_uuid: str
    share_mib: int
    job: str
    replica: str
    pid: int | None = None
    user: str | None = None
    since: float = 0.0
    guard: int | None = None
    run_dir: str = ""
    whole: bool = False

    @property
    def job_label(self) -> str:
        """The job's name for people: `snake-4`, or `alice/snake-4` for another user's."""
        return self.job if self.user is None else f"{self.user}/{self.job}"

    @property
    def holder(self) -> Holder:
        """Whose share it is; the replica is empty for a process of which only its job is known."""
        return self.user, self.run_dir, self.job, self.replica


def holders(leases: Iterable[Lease]) -> dict[int, Lease]:
    """Return by pid the lease that the process uses: its own, or with a share of 0 the one of its replica."""
    known = tuple(leases)
    shares = {lease.holder: lease for lease in known if lease.share_mib}
    return {lease.pid: shares.get(lease.holder, lease) for lease in known if lease.pid is not None}


def shares_used(leases: Iterable[Lease]) -> dict[tuple[int, str], int]:
    """Return by pid and device uuid the share that the process uses there, in MiB; 0 where it is unknown."""
    known = tuple(leases)
    shares = {(lease.holder, lease.device_uuid): lease.share_mib for lease in known if lease.share_mib}
    return {
        (lease.pid, lease.device_uuid): shares.get((lease.holder, lease.device_uuid), 0)
        for lease in known
        if lease.pid is not None
    }
