"""A share that is held now, by a live job."""

from collections.abc import Iterable

import msgspec

__all__ = ["Lease", "holders"]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`share_mib` of the device `device_uuid`, held by a replica of a job; `pid` is None until it runs.

    A share of 0 names a further process of the same replica, which uses the replica's share. `user` is the name of
    another user whose job it is, None for our own; `since` is when the job took it, in Unix seconds, 0 if unknown.
    """

    device_uuid: str
    share_mib: int
    job: str
    replica: str
    pid: int | None = None
    user: str | None = None
    since: float = 0.0


def holders(leases: Iterable[Lease]) -> dict[int, Lease]:
    """Return by pid the lease that the process uses: its own, or with a share of 0 the one of its replica."""
    known = tuple(leases)
    shares = {(lease.job, lease.replica): lease for lease in known if lease.share_mib}
    return {lease.pid: shares.get((lease.job, lease.replica), lease) for lease in known if lease.pid is not None}
