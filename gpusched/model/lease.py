"""A share that is held now, by a live job."""

import msgspec

__all__ = ["Lease"]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`share_mib` of the device `device_uuid`, held by a replica of a job; `pid` is None until it runs."""

    device_uuid: str
    share_mib: int
    job: str
    replica: str
    pid: int | None = None
