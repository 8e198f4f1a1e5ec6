"""Why a request that asks for whole devices has no place: never or not now, and who holds what."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.model.lease import Lease
from gpusched.model.plan import Request
from gpusched.planner.budget import Budget
from gpusched.planner.fit import Rules, division, giving_way, needs
from gpusched.planner.holders import held_lines
from gpusched.planner.policy import policy_named
from gpusched.planner.problem import Problem
from gpusched.planner.refuse import Attempt, refusal
from gpusched.planner.solve import fits
from gpusched.planner.whole import Allotment, allotments, is_whole, with_all
from gpusched.planner.words import alone_lines, gpus, listed, needed_by, whole_gpus

__all__ = ["whole_refusal"]


def whole_refusal(
    request: Request, grounds: Sequence[Budget], leases: Sequence[Lease], rules: Rules, excluded: tuple[str, ...]
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
    whole = next(allotments(with_all(request, 1), idle, rules.context_mib), None)
    if whole is not None:
        return _others_refusal(request, idle, whole, rules, excluded)
    where = gpus([budget.device.label for budget in grounds])
    mig = any(budget.device.mig_index is not None for budget in grounds)
    why = "; a process sees one MIG instance at the most" if mig else ""
    hint = "ask for fewer, or take a machine with more devices"
    return NeverFits(f"{needed}, and there is {where}, each for one replica{why}", "; ".join([hint, *extra]))


def _others_refusal(
    request: Request, idle: Sequence[Budget], whole: Allotment, rules: Rules, excluded: tuple[str, ...]
) -> DoesNotFit:
    """Return why those without whole devices have no place on what is left, though everything is idle."""
    taken = {piece.budget.device.uuid for pieces in whole.values() for piece in pieces}
    left = tuple(budget for budget in idle if budget.device.uuid not in taken)
    labels = [budget.device.label for budget in idle if budget.device.uuid in taken]
    theirs = f"{gpus(labels)} {'is' if len(labels) == 1 else 'are'} as a whole for {listed(sorted(whole))}"
    if not left:
        needed = f"needs {needed_by(request.roles, rules.context_mib)}"
        return NeverFits(f"{needed}; {theirs}, and no other is left", f"ask for fewer than {whole_gpus(len(labels))}")
    others = replace(request, roles=tuple(role for role in request.roles if role.devices is None))
    problem = Problem(rooms=tuple(budget.now for budget in left), needs=needs(others), context_mib=rules.context_mib)
    policy = policy_named(rules.policy)
    attempt = Attempt(
        request=others,
        problem=giving_way(problem),
        policy=rules.policy,
        grounds=left,
        excluded=(theirs, *excluded),
        fits=lambda changed: fits(policy(changed)),
    )
    return refusal(attempt)
