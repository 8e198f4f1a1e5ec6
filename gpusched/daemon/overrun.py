"""Which replica uses more of a device than its share, and the order for its supervisor. No I/O, no clock.

A replica is warned at the first sight. If it is over for a whole grace, it is restarted (policy "stop"): but not where
its contexts explain it. What a context takes is known only once a process runs, and a program can do nothing about it,
so the driver may show as much again as was planned for contexts (docs/gpu-verification.md has the sizes on a H200).
The grace is cut short where its neighbours would be the ones to run out of memory: when less of the device is free than
they may still take, and less than 1/32 of it; of several that are over there, one at a time, the worst first. A replica
that has a device to itself (no process beside it, and at least 9/10 of the device) does no harm: it is only warned.

Use is the sum over a replica's processes on a device. Where the driver reports no amount, there is no verdict.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from gpusched.execution.orders import OverrunOrder
from gpusched.model.device import Device, Inventory
from gpusched.model.lease import Holder, Lease, holders
from gpusched.model.status import JobStatus, ReplicaState

__all__ = ["Overruns"]

_LITTLE: Final = 32
_Run = tuple[str, str, int]  # job, replica, and the pid of this run of it


class _Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica uses of one device. `danger`: its neighbours are about to run out.

    `context_mib`: the part of the share that is for its contexts.
    """

    device: Device
    used_mib: int
    share_mib: int
    context_mib: int
    alone: bool
    danger: bool

    @property
    def excess(self) -> int:
        return self.used_mib - self.share_mib

    @property
    def is_of_contexts(self) -> bool:
        """Whether larger contexts than planned explain what it uses beyond its share."""
        return 0 < self.excess <= self.context_mib

    def text(self, verb: str) -> str:
        return f"{verb} {self.used_mib} of its {self.share_mib} MiB on GPU {self.device.label}"


class Overruns:
    """Remembers which runs of replicas are over their share, and since when.

    `grace_s` in seconds. With the policy "warn" no replica is restarted.
    """

    def __init__(self, grace_s: float, policy: Literal["warn", "stop"]) -> None:
        self._grace_s = grace_s
        self._stops = policy == "stop"
        self._since: dict[_Run, float] = {}
        self._of_contexts: set[_Run] = set()
        self._stopping: dict[_Run, str] = {}  # on which device

    def check(
        self, inventory: Inventory, leases: Iterable[Lease], jobs: Iterable[JobStatus], now: float
    ) -> list[tuple[str, OverrunOrder]]:
        """Return the orders that this moment asks for, each with its job's id. An empty message ends a warning.

        `leases` name all processes of the replicas (a share of 0 for further ones), those of other users as well;
        `now` is in seconds of a clock that goes on evenly. Simulated devices and jobs are left alone.
        """
        if inventory.simulated:
            return []
        jobs = tuple(jobs)
        runs = _runs(jobs)
        self._since = {run: since for run, since in self._since.items() if run in runs}
        self._stopping = {run: uuid for run, uuid in self._stopping.items() if run in runs}
        self._of_contexts &= runs.keys()
        uses = _uses(inventory, tuple(leases), _contexts(jobs))
        worst = {
            run: max(use, key=lambda each: each.excess) for run, holder in runs.items() if (use := uses.get(holder))
        }
        orders = (
            (run[0], self._order(run, use, now))
            for run, use in sorted(worst.items(), key=lambda each: each[1].excess, reverse=True)
        )
        return [(job, order) for job, order in orders if order is not None]

    def _order(self, run: _Run, use: _Use, now: float) -> OverrunOrder | None:
        if run in self._stopping:
            return None
        _, replica, pid = run
        if use.excess <= 0:
            was_over = self._since.pop(run, None) is not None
            was_over |= run in self._of_contexts
            self._of_contexts.discard(run)
            return OverrunOrder(replica=replica, pid=pid, message="") if was_over else None
        if use.is_of_contexts and not use.danger:
            return self._of_larger_contexts(run, use)
        first_sight = run not in self._since
        over_s = now - self._since.setdefault(run, now)
        early = use.danger and use.device.uuid not in self._stopping.values()
        if self._stops and not use.alone and (early or (over_s >= self._grace_s and not first_sight)):
            self._stopping[run] = use.device.uuid
            why = ", and its neighbours would have run out" if early else f" for {over_s:.0f} s"
            return OverrunOrder(replica=replica, pid=pid, message=use.text("used") + why, restart=True)
        if not first_sight:
            return None
        threat = f"; it may for {self._grace_s:g} s" if self._stops and not use.alone else ""
        return OverrunOrder(replica=replica, pid=pid, message=use.text("uses") + threat)

    def _of_larger_contexts(self, run: _Run, use: _Use) -> OverrunOrder | None:
        """Warn once that the contexts are larger than planned, also when it was over by more before."""
        was_over = self._since.pop(run, None) is not None
        if run in self._of_contexts and not was_over:
            return None
        self._of_contexts.add(run)
        _, replica, pid = run
        message = f"{use.text('uses')}: its context takes more than the {use.context_mib} MiB that were planned for it"
        return OverrunOrder(replica=replica, pid=pid, message=message)


def _runs(jobs: Iterable[JobStatus]) -> dict[_Run, Holder]:
    return {
        (job.id, one.name, one.pid): (None, job.run_dir, job.id, one.name)
        for job in jobs
        if not job.simulated
        for one in job.replicas
        if one.pid is not None and one.state in (ReplicaState.STARTING, ReplicaState.RUNNING)
    }


def _contexts(jobs: Iterable[JobStatus]) -> dict[tuple[Holder, str | None], int]:
    """Return what was planned for the contexts of each replica on its first device; further ones are its own."""
    return {
        ((None, job.run_dir, job.id, one.name), one.device_uuid): one.share_mib - one.limit_mib
        for job in jobs
        for one in job.replicas
    }


def _uses(
    inventory: Inventory, leases: Sequence[Lease], contexts: Mapping[tuple[Holder, str | None], int]
) -> dict[Holder, list[_Use]]:
    """Return what each holder of shares uses, device by device; without those of whom some amount is unknown."""
    by_pid = holders(leases)
    found: dict[Holder, list[_Use]] = {}
    untold: set[Holder] = set()
    for device in inventory.devices:
        shares: dict[Holder, int] = {}
        for lease in leases:
            if lease.device_uuid == device.uuid and lease.share_mib:
                holder = lease.holder
                shares[holder] = shares.get(holder, 0) + lease.share_mib
        used, strangers, unknown = _used(device, by_pid)
        untold |= unknown if device.memory_used_mib is not None else shares.keys()
        for holder, share in shares.items():
            others = {other: mib for other, mib in shares.items() if other != holder}
            left = sum(max(0, mib - used.get(other, 0)) for other, mib in others.items())
            use = _Use(
                device=device,
                used_mib=used.get(holder, 0),
                share_mib=share,
                context_mib=contexts.get((holder, device.uuid), 0),
                alone=not others and not strangers and share * 10 >= (device.memory_total_mib or 0) * 9,
                danger=_is_scarce(device, left),
            )
            found.setdefault(holder, []).append(use)
    return {holder: uses for holder, uses in found.items() if holder not in untold}


def _used(device: Device, by_pid: dict[int, Lease]) -> tuple[dict[Holder, int], bool, set[Holder]]:
    """Return the use by holder in MiB, whether a process without a share is on the device, and whose use is unknown."""
    used: dict[Holder, int] = {}
    strangers = False
    untold: set[Holder] = set()
    for process in device.processes:
        lease = by_pid.get(process.pid)
        if lease is None:
            strangers = True
            continue
        holder = lease.holder
        if process.memory_mib is None:
            untold.add(holder)
        else:
            used[holder] = used.get(holder, 0) + process.memory_mib
    return used, strangers, untold


def _is_scarce(device: Device, left_mib: int) -> bool:
    """Return whether less is free than `left_mib`, which the neighbours may still take, and less than 1/32."""
    if device.memory_total_mib is None or device.memory_used_mib is None:
        return False
    free = device.memory_total_mib - device.memory_used_mib - (device.memory_reserved_mib or 0)
    return free < left_mib and free * _LITTLE < device.memory_total_mib
