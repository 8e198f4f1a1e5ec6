"""One machine during a pass over the queue: what is free there, which job is its head, and what that waits for."""

import math
from collections.abc import Hashable, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import msgspec

from gpusched.errors import NeverFits, UsageError
from gpusched.execution.plans import (
    chosen_devices,
    could_be_on,
    is_feasible,
    mib_lacking,
    need_of,
    needs_devices,
    on_single_devices,
    plan_for,
    replicas_for,
    ways,
)
from gpusched.leases.directory import leases_of_replicas
from gpusched.model.device import Inventory
from gpusched.model.job import Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan
from gpusched.planner.capacity import DeviceCapacity, device_capacities, excluded_devices
from gpusched.planner.command import roomiest
from gpusched.planner.foreign import without_ignored
from gpusched.planner.holders import Began
from gpusched.scheduling.backfill import Ends, HeadReservation, releases_of
from gpusched.scheduling.forecast import DeviceForecast, HeadForecast, WholeForecast
from gpusched.scheduling.wait_reasons import device_holders, never_line, what_it_needs
from gpusched.settings import Settings

__all__ = ["Fit", "Machine", "MachineSnapshot"]

_MOST_CHECKS: Final = 1000
"""Sets of ends that are checked for one head in one pass, where replicas have one size; fewer for more sizes."""

_MOST_COST: Final = 128
"""The ways in which the roles of a head may share a device, times the devices, for its start to be predicted.

One prediction takes 30 to 60 checks, each 0.05 ms for 8 devices and 2 ways, 0.2 ms for 64.
"""

_MOST_LEFT_OUT: Final = 3
"""Devices out of order that the reason of a waiting job names."""


class MachineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as it is: its devices, and every live lease on them, of all users.

    `began` returns when a process of others on it began (Unix seconds); only the named ones are asked for.
    """

    inventory: Inventory
    leases: tuple[Lease, ...] = ()
    began: Began = lambda _: None


class Fit(Enum):
    """Whether a job fits as things are, or when others have ended."""

    NOW = "now"
    LATER = "later"


class _Allowed(NamedTuple):
    """The devices that a job may use, and of each kind that with most room."""

    devices: tuple[DeviceCapacity, ...]
    roomiest: tuple[DeviceCapacity, ...]


class Machine:
    """One snapshot during a pass: what starts is leased at once. `ends`: see `releases_of`.

    `turns_come_first`: jobs before the head wait for an end in their group or array. So its start is not known.
    """

    def __init__(self, snapshot: MachineSnapshot, ends: dict[tuple[str, str], Ends], settings: Settings) -> None:
        self.inventory = snapshot.inventory
        self.leases = snapshot.leases
        self._began = snapshot.began
        self.head: str | None = None
        self.turns_come_first = False
        self.reservation: HeadReservation | None = None
        self.forecast: HeadForecast | None = None
        self.failures = 0
        self.surety = math.inf
        self.latest = -math.inf
        self._ends = ends
        self._settings = settings
        self._all_capacities = device_capacities(snapshot.inventory, snapshot.leases, settings.headroom, None)
        self._allowed: dict[Hashable, _Allowed] = {}
        self._holders: dict[tuple[frozenset[str] | None, str | None], str] = {}
        self._needs: dict[Hashable, str] = {}

    def devices(self, submission: Submission) -> tuple[DeviceCapacity, ...]:
        """Return the devices that the job may use, as they are now. Raises as `chosen_devices` does."""
        return self._allowed_to(submission).devices

    def _allowed_to(self, submission: Submission) -> _Allowed:
        only = chosen_devices(submission, self.inventory)
        key = only, submission.ignore_foreign
        if key not in self._allowed:
            every = self._capacities(submission.ignore_foreign)
            devices = tuple(each for each in every if only is None or each.device.uuid in only)
            self._allowed[key] = _Allowed(devices, roomiest(devices))
        return self._allowed[key]

    def fit(self, submission: Submission) -> Fit | NeverFits:
        """Return whether the job fits now, or will when others end, or the error if neither. Raises HostFault."""
        try:
            allowed = self._allowed_to(submission)
            if not needs_devices(submission) or (submission.command is None and not self.inventory.devices):
                return Fit.NOW
            on_one = on_single_devices(submission)[1] == 1
            capacities = allowed.roomiest if on_one else allowed.devices
            if is_feasible(submission, capacities, self._settings):
                return Fit.NOW
            if is_feasible(submission, [capacity.emptied for capacity in capacities], self._settings):
                return Fit.LATER
        except NeverFits as error:
            return error
        except UsageError as error:
            return NeverFits(error.message, error.hint)
        return self._why_never(submission, allowed.devices)

    def plan(self, submission: Submission, avoid: frozenset[str] = frozenset()) -> Plan:
        """Return the plan of a job that fits without the devices `avoid`. Raises as `plan_for` does."""
        return plan_for(submission, self.inventory, self.leases, self._settings, avoid)

    def leases_without(
        self, submission: Submission, avoid: frozenset[str], job: str
    ) -> tuple[tuple[Lease, ...], Plan | None] | None:
        """Return what the job would hold by its plan without the devices `avoid`, or None if it does not fit there.

        With it comes that plan, where it was made for this.
        """
        rest = [capacity for capacity in self.devices(submission) if capacity.device.uuid not in avoid]
        found = replicas_for(submission, self.inventory, self.leases, self._settings, rest, avoid)
        return None if found is None else (leases_of_replicas(found[0], job), found[1])

    def take(self, leases: tuple[Lease, ...]) -> None:
        """Lease what a job that starts gets."""
        self.leases += leases
        taken = frozenset(lease.device_uuid for lease in leases)
        changed = device_capacities(self.inventory, self.leases, self._settings.headroom, taken)
        by_uuid = {capacity.device.uuid: capacity for capacity in changed}
        self._all_capacities = tuple(by_uuid.get(each.device.uuid, each) for each in self._all_capacities)
        self._allowed.clear()

    def wait_at_head(self, job: str, submission: Submission, now: float, surety: float) -> None:
        """Let a job that fits later be the head. `surety`: how probably a job ends before its start that passes it."""
        capacities = [
            capacity for capacity in self.devices(submission) if could_be_on(submission, capacity, self._settings)
        ]
        single, number = on_single_devices(submission)
        self.head = job
        self.reservation = HeadReservation(
            capacities,
            releases_of(capacities, self.leases, self._ends),
            lambda after: is_feasible(single, after, self._settings),
            _MOST_CHECKS // ways(submission),
            number,
        )
        self.surety = surety
        if surety <= 1 and number is not None:
            lacking = partial(mib_lacking, submission, settings=self._settings)
            self.forecast = DeviceForecast(self.reservation.waits(lacking), number, now)
        elif surety <= 1 and (cost := ways(submission) * len(capacities)) <= _MOST_COST:
            one_in = 3 if cost <= _MOST_COST // 2 else 6
            found = partial(self.reservation.starts, now, one_in)
            self.forecast = WholeForecast(found, max(1, _MOST_COST // (2 * cost)), now)

    def delays_little(self, leases: Sequence[Lease], ends: tuple[float, ...]) -> bool:
        """Return whether the head is expected by `latest` also beside a job that has these leases, and ends so."""
        if self.forecast is None or self.reservation is None:
            return False
        return self.forecast.expected_beside(self.reservation.amounts(leases), ends) <= self.latest < math.inf

    def why_later(self, submission: Submission, now: float) -> str:
        """Return what the job needs, who holds the devices that it may use, and which of them take nothing."""
        return "; ".join(filter(None, (self.what_it_needs(submission), self._held(submission, now))))

    def _held(self, submission: Submission, now: float) -> str:
        only = chosen_devices(submission, self.inventory)
        key = only, submission.ignore_foreign
        if key not in self._holders:
            holders = device_holders(self.devices(submission), self.leases, self._began, now)
            excluded = excluded_devices(self.inventory, only)[:_MOST_LEFT_OUT]
            self._holders[key] = "; ".join(filter(None, (holders, *excluded)))
        return self._holders[key]

    def _capacities(self, ignored: str | None) -> tuple[DeviceCapacity, ...]:
        """Return the devices, without the processes of others that a job passes over."""
        if ignored is None:
            return self._all_capacities
        inventory, _ = without_ignored(self.inventory, self.leases, ignored)
        return device_capacities(inventory, self.leases, self._settings.headroom, None)

    def what_it_needs(self, submission: Submission) -> str:
        """Return what the job needs, in numbers."""
        need = need_of(submission)
        if need not in self._needs:
            kinds = self._allowed_to(submission).roomiest
            self._needs[need] = what_it_needs(submission, kinds, self._settings.context_mib)
        return self._needs[need]

    def _why_never(self, submission: Submission, capacities: Sequence[DeviceCapacity]) -> NeverFits:
        excluded = excluded_devices(self.inventory, chosen_devices(submission, self.inventory))
        line = never_line(submission, capacities, excluded, self._settings.context_mib)
        return NeverFits(line, "mend or undrain the device, or stop the job and ask for less")
