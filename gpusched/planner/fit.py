"""Whether a request has a place, without saying where: what the planner asks first, and a queue over and over."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gpusched.model.plan import Request
from gpusched.planner.budget import Budget
from gpusched.planner.policy import Policy, policy_named
from gpusched.planner.problem import Need, Problem
from gpusched.planner.solve import fits

__all__ = ["Rules", "any_fits", "giving_way", "needs", "request_fits", "with_count"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan keeps to. `headroom` in 1/10 000 of a device; `only` are the uuids to use, None for all.

    `context_mib`: what every replica takes on a device before it allocates anything.
    """

    policy: str = "balanced"
    context_mib: int = 450
    headroom: int = 200
    only: frozenset[str] | None = None


def request_fits(request: Request, grounds: Sequence[Budget], context_mib: int, policy: str) -> bool:
    """Return whether everything that needs a device has a place on `grounds` at its minimum.

    More memory on any device never turns a yes into a no. Raises UsageError as `plan` does.
    """
    rooms = tuple(budget.now for budget in grounds)
    problem = Problem(rooms=rooms, needs=needs(request), context_mib=context_mib)
    wanted = sum(need.count * (need.min_mib + context_mib) for need in problem.needs)
    if wanted > sum(room.plannable_mib for room in rooms):
        return False
    return not wanted or any_fits(problem, policy_named(policy))


def any_fits(problem: Problem, policy: Policy) -> bool:
    """Return whether everything has a place at its minimum."""
    return fits(policy(giving_way(problem)))


def needs(request: Request) -> tuple[Need, ...]:
    """Return one need per role, in the roles' order; a role without memory needs no room."""
    return tuple(
        Need(0, 0) if role.memory is None else Need(role.count, role.memory.min_mib, role.memory.share)
        for role in request.roles
    )


def giving_way(problem: Problem) -> Problem:
    """Return the problem in which a role that asks for a share is content with its minimum."""
    content = (need if need.share is None else replace(need, share=0) for need in problem.needs)
    return replace(problem, needs=tuple(content))


def with_count(request: Request, name: str, count: int) -> Request:
    """Return the request with `count` replicas of the role `name`."""
    roles = (replace(role, count=count) if role.name == name else role for role in request.roles)
    return replace(request, roles=tuple(roles))
