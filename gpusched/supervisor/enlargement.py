"""More memory for a replica that is started again because it ran out of it, as far as its device has room.

What the device can give is what the plan found there, less what all leases hold now. It is taken under the lock of the
lease directory, as every plan takes its shares.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpusched.environment import resource_environment
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.orders import OverrunOrder
from gpusched.execution.spec import JobSpec
from gpusched.leases.directory import LeaseDirectory, replace_share
from gpusched.model.footprint import enlarged
from gpusched.model.plan import ReplicaSpec
from gpusched.supervisor.events import Ordered
from gpusched.units import fraction_of

__all__ = ["Enlargement"]

_PATIENCE_S: Final = 1.0
_LEAST_MIB: Final = 64
"""A gain below this is not worth a try: a framework takes memory in pieces of some MiB."""


class Enlargement:
    """Which replicas of a job lacked memory of their device, and what they get at their next start."""

    def __init__(self, directory: JobDirectory, spec: JobSpec) -> None:
        self._lease, self._rooms, self._xla_variable = directory.lease, spec.rooms, spec.xla_variable
        self._most_mib = spec.most_mib
        self._lacked: set[str] = set()
        self._notes: dict[str, str] = {}

    def lacked(self, replica: str) -> None:
        """Note that a replica has ended for want of memory on its device."""
        self._lacked.add(replica)

    def next(self, spec: ReplicaSpec) -> ReplicaSpec:
        """Return what is to be started now of a replica: with more memory, if it lacked some and there is more."""
        one = spec.replica
        if one.name not in self._lacked:
            return spec
        self._lacked.discard(one.name)
        lack = f"out of memory at {one.limit_mib} MiB"
        room = self._rooms.get(one.device_uuid or "")
        if room is None or one.whole or one.further:
            return spec
        gained, why = self._gained(spec, room.most_mib)
        if not gained:
            self._notes[one.name] = f"{lack}: again with as much, because {why}"
            return spec
        limit = one.limit_mib + gained
        larger = msgspec.structs.replace(one, limit_mib=limit, fraction=fraction_of(limit, room.total_mib))
        self._notes[one.name] = f"{lack}: again with {limit}"
        env = spec.env | resource_environment(larger, self._xla_variable)
        return msgspec.structs.replace(spec, replica=larger, env=env)

    def news(self, replica: str, pid: int, now: float) -> Iterator[Ordered]:
        """Yield, once, the warning with which a replica runs again as `pid` that lacked memory."""
        note = self._notes.pop(replica, None)
        if note is not None:
            yield Ordered(order=OverrunOrder(replica=replica, pid=pid, message=note), now=now)

    def _gained(self, spec: ReplicaSpec, most_mib: int) -> tuple[int, str]:
        """Return how many MiB more the replica has from now on, and why none where that is 0."""
        one = spec.replica
        wanted = enlarged(one.limit_mib) - one.limit_mib
        if one.role in self._most_mib:
            wanted = min(wanted, self._most_mib[one.role] - one.limit_mib)
        if wanted <= 0:
            return 0, f"that is the max of role {one.role}"
        try:
            path = self._lease.readlink()
            if not path.is_file():  # nor is a directory made where a job's link leads
                return 0, "its lease is gone"
            directory = LeaseDirectory(path.parent)
            with directory.locked(_PATIENCE_S):
                held = sum(lease.share_mib for lease in directory.read() if lease.device_uuid == one.device_uuid)
                gained = min(wanted, most_mib - held)
                if gained < min(wanted, _LEAST_MIB):
                    return 0, "its device has no more to give"
                replace_share(path, one.name, one.device_uuid or "", one.share_mib + gained)
        except HostFault as error:
            return 0, f"its lease cannot be changed: {error.message}"
        except (OSError, msgspec.MsgspecError) as error:
            return 0, f"its lease cannot be changed: {error}"
        return gained, ""
