"""Why a job waits, in one line and in numbers: what it needs, and who holds the devices that it could use."""

import math
import shlex
from collections.abc import Sequence
from typing import Final

from gpusched.execution.plans import request_of
from gpusched.model.job import Submission
from gpusched.model.lease import Lease
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.command import needed
from gpusched.planner.holders import Began, held
from gpusched.planner.plan_format import needed_by
from gpusched.units import FRACTION_ONE, format_seconds, portion

__all__ = [
    "array_full",
    "array_place_kept",
    "device_holders",
    "group_full",
    "group_paused",
    "group_place_kept",
    "never_line",
    "no_place_left",
    "place_kept",
    "waits_for",
    "what_it_needs",
    "when_expected",
    "would_delay",
]

_MOST_DEVICES: Final = 3
_MOST_NAMED: Final = 5


def what_it_needs(submission: Submission, capacities: Sequence[DeviceCapacity], context_mib: int) -> str:
    """Return `needs 1583 MiB × 10 (actor)`, context included, or what a command needs, and what it is restricted to."""
    within = "" if submission.visible is None else f" (with {submission.visible.variable})"
    if submission.command is not None:
        return f"needs {needed(submission.command, context_mib)}{_part(submission, capacities)}{within}"
    return f"needs {needed_by(request_of(submission).roles, context_mib)}{within}"


def device_holders(capacities: Sequence[DeviceCapacity], leases: Sequence[Lease], began: Began, now: float) -> str:
    """Return who holds the devices, those of which most is held: `GPU 2 has 6334 of 15837 MiB free, ...`."""
    by_held = sorted(capacities, key=lambda capacity: capacity.plannable_mib - capacity.idle_mib)
    taken = [capacity for capacity in by_held if _is_taken(capacity)]
    texts = [
        ", ".join(filter(None, (_room(capacity), held(capacity, leases, began, now))))
        for capacity in taken[:_MOST_DEVICES]
    ]
    more = len(taken) - len(texts)
    return "; ".join([*texts, f"and {more} more"] if more else texts)


def never_line(
    submission: Submission, capacities: Sequence[DeviceCapacity], excluded: Sequence[str], context_mib: int
) -> str:
    """Return why the job does not fit however long it waits: what it needs, and what there is when all is idle."""
    idle = sorted((capacity.idle_mib for capacity in capacities), reverse=True)
    gpus = f"{len(idle)} GPU{'' if len(idle) == 1 else 's'} of up to {idle[0]} MiB" if idle else "no GPU"
    needs = what_it_needs(submission, capacities, context_mib)
    return "; ".join([f"{needs}, and all that it could have on an idle host is {gpus}", *excluded[:_MOST_DEVICES]])


def waits_for(successes: Sequence[str], ends: Sequence[str]) -> str:
    """Return which jobs one waits for: until they succeed, or only until they end."""
    parts = [f"{_few(successes)} to succeed"] if successes else []
    return f"waits for {' and for '.join([*parts, *([f'the end of {_few(ends)}'] if ends else [])])}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (" and others" if len(names) > _MOST_NAMED else "")


def when_expected(starts: Sequence[float], now: float) -> str:
    """Return when a head starts, of equally likely `starts` (Unix seconds): in 40m, between 10m and 2h; "": unknown."""
    low, middle, high = (sorted(starts)[len(starts) * part // 10] - now for part in (1, 5, 9))
    if middle == math.inf:
        return ""
    early, usual = (format_seconds(max(1, round(seconds))) for seconds in (low, middle))
    late = "never" if high == math.inf else format_seconds(max(1, round(high)))
    return (
        f"expected to start in about {usual}"
        if early == late
        else f"expected to start in {usual}, between {early} and {late}"
    )


def would_delay(needs: str, head: str, most_s: float | None) -> str:
    """Return why a job that has a place waits all the same. It could pass if it were over in `most_s` (None: never)."""
    reason = f"{needs}; there is room for it, but {head}, which is before it, could then start later"
    if most_s is None or most_s < 1:
        return reason
    return f"{reason}; with a --time-limit of at most {format_seconds(most_s)} it may pass"


def no_place_left(live: int, most: int) -> str:
    """Return why nothing more may start, whatever it needs."""
    return f"{live} jobs run and at most {most} may (most_jobs in the configuration)"


def place_kept(head: str, most: int) -> str:
    """Return why the last place among the live jobs is not given away."""
    return f"the last of {most} places for running jobs is kept for {head}, which is before it"


def group_full(group: str, running: int, most: int) -> str:
    """Return why no more of a group may start, whatever it needs."""
    jobs = "job runs" if running == 1 else "jobs run"
    return f"group {group}: {running} {jobs} and at most {most} may; change it with: {_command(group)} --at-most N"


def group_place_kept(group: str, head: str, most: int) -> str:
    """Return why the last place of a group is not given away."""
    return f"group {group}: the last of its {most} places is kept for {head}, which is before it"


def array_full(array: str, running: int, most: int) -> str:
    """Return why no more members of an array may start, whatever they need."""
    return f"{running} of at most {most} members of {array} run"


def array_place_kept(array: str, head: str, most: int) -> str:
    """Return why the last place of an array's members is not given away."""
    return f"the last of the {most} places of {array}'s members is kept for {head}, which is before it"


def group_paused(group: str) -> str:
    """Return why no job of a group starts that is paused."""
    return f"group {group} is paused; let it go on with: {_command(group)} --resume"


def _command(group: str) -> str:
    return f"gpusched group {shlex.quote(group)}"


def _is_taken(capacity: DeviceCapacity) -> bool:
    """Return whether leases or foreign processes hold something of the device."""
    seen = bool(capacity.leased_mib or capacity.foreign)
    return seen or capacity.taken or capacity.foreign_mib > capacity.drivers_mib


def _room(capacity: DeviceCapacity) -> str:
    if capacity.taken:
        mode = (capacity.device.compute_mode or "").upper()
        return f"GPU {capacity.device.label} lets one process in ({mode}) and has one"
    return f"GPU {capacity.device.label} has {capacity.plannable_mib} of {capacity.idle_mib} MiB free"


def _part(submission: Submission, capacities: Sequence[DeviceCapacity]) -> str:
    """Return how much a part of a device is: one amount if all devices agree, else the least and the most."""
    fraction = submission.command.fraction if submission.command else None
    sizes = sorted({capacity.idle_mib for capacity in capacities})
    if fraction is None or not sizes or not 0 < fraction < FRACTION_ONE:
        return ""
    least, most = portion(sizes[0], fraction), portion(sizes[-1], fraction)
    return f", {least} of {sizes[0]} MiB" if len(sizes) == 1 else f", {least} to {most} MiB"
