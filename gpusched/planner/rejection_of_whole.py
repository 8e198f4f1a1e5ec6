"""Why a request that asks for whole devices has no place: never or not now, and who holds what."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.model.lease import Lease
from gpusched.model.plan import Request
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.feasibility import Rules, division
from gpusched.planner.holders import held_lines
from gpusched.planner.plan_format import alone_lines, gpus, listed, needed_by, number
from gpusched.planner.policies import policy_named
from gpusched.planner.rejection import Attempt, attempt_on, refusal, what_would_fit
from gpusched.planner.whole_devices import WholeDeviceAssignment, allotments, is_whole, with_all

__all__ = ["whole_refusal"]


def whole_refusal(
    request: Request,
    grounds: Sequence[DeviceCapacity],
    leases: Sequence[Lease],
    rules: Rules,
    excluded: tuple[str, ...],
) -> DoesNotFit:
    """Return the error for a request that `division` has no answer to: NotNow if it has one on idle devices."""
    if not grounds:
        return NeverFits(f"no device takes a replica: {'; '.join(excluded)}", "see gpusched status")
    idle = [budget.emptied for budget in grounds]
    needed = f"needs {needed_by(request.roles, rules.context_mib)}"
    extra = [*alone_lines(grounds), *excluded]
    if division(request, idle, rules.context_mib, policy_named(rules.policy)) is not None:
        free = sum(is_whole(budget) for budget in grounds)
        hint = f"wait: {free} of {len(grounds)} GPUs {'is' if free == 1 else 'are'} whole now"
        return NotNow("; ".join([needed, *held_lines(grounds, leases)]), "; ".join([hint, *extra]))
    ways = list(allotments(with_all(request, 1), idle, rules.context_mib))
    if ways:
        return _others_refusal(request, idle, ways, rules, excluded)
    where = gpus([budget.device.label for budget in grounds])
    mig = any(budget.device.mig_index is not None for budget in grounds)
    why = "; a process sees one MIG instance at the most" if mig else ""
    hint = "ask for fewer, or take a machine with more devices"
    return NeverFits(f"{needed}, and there is {where}, each for one replica{why}", "; ".join([hint, *extra]))


def _others_refusal(
    request: Request,
    idle: Sequence[DeviceCapacity],
    ways: Sequence[WholeDeviceAssignment],
    rules: Rules,
    excluded: tuple[str, ...],
) -> DoesNotFit:
    """Return why those without whole devices have no place on what is left, though everything is idle.

    Of all `ways` to give whole devices it names the one beside which the most of them would fit.
    """
    devices = sum(map(len, ways[0].values()))
    if devices == len(idle):
        needed = f"needs {needed_by(request.roles, rules.context_mib)}"
        theirs, _ = _theirs(ways[0], idle)
        return NeverFits(
            f"{needed}; {theirs}, and no other is left", f"ask for fewer than {number(devices, 'whole GPU')}"
        )
    attempts = [_attempt_beside(whole, request, idle, rules, excluded) for whole in ways]
    return refusal(max(attempts, key=what_would_fit))


def _theirs(whole: WholeDeviceAssignment, idle: Sequence[DeviceCapacity]) -> tuple[str, tuple[DeviceCapacity, ...]]:
    """Return in words which devices are given as a whole, and those that are left."""
    taken = {piece.budget.device.uuid for pieces in whole.values() for piece in pieces}
    labels = [budget.device.label for budget in idle if budget.device.uuid in taken]
    are = "is" if len(labels) == 1 else "are"
    left = tuple(budget for budget in idle if budget.device.uuid not in taken)
    return f"{gpus(labels)} {are} as a whole for {listed(sorted(whole))}", left


def _attempt_beside(
    whole: WholeDeviceAssignment,
    request: Request,
    idle: Sequence[DeviceCapacity],
    rules: Rules,
    excluded: tuple[str, ...],
) -> Attempt:
    theirs, left = _theirs(whole, idle)
    others = replace(request, roles=tuple(role for role in request.roles if role.devices is None))
    return attempt_on(left, others, rules, (theirs, *excluded))
