"""Small hosts and requests for the planner's tests, and an exhaustive search that shares no code with the planner."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from random import Random
from typing import NamedTuple

from gpusched.model.device import ComputeMode, Device, Inventory
from gpusched.model.plan import Plan, Request, RoleRequest
from gpusched.model.workload import Memory
from gpusched.planner import Rules, plan


def host(*totals: int, used: Sequence[int] = (), cpus: int = 64, mode: ComputeMode = "default") -> Inventory:
    """Return a host with devices of these MiB, of which `used` are in use by nobody in particular."""
    held = [*used, *[0] * (len(totals) - len(used))]
    devices = tuple(
        Device(
            index=i,
            uuid=f"GPU-{i}",
            name="card",
            memory_total_mib=mib,
            memory_used_mib=in_use,
            memory_reserved_mib=0,
            compute_mode=mode,
        )
        for i, (mib, in_use) in enumerate(zip(totals, held, strict=True))
    )
    return Inventory(host="here", source="nvml", devices=devices, cpus=tuple(range(cpus)))


Asked = tuple[int, int] | tuple[int, int, float] | tuple[int, int, float | None, int | None]


def ask(**roles: Asked) -> Request:
    """Return a request: role=(count, min MiB), and after these perhaps the share, and the max MiB."""
    wanted = []
    for name, (count, least, *more) in roles.items():
        share, most = (*more, None, None)[:2]
        memory = Memory(min_mib=least, share=None if share is None else round(share * 10_000), max_mib=most)
        wanted.append(RoleRequest(name=name, count=count, memory=memory))
    return Request(workload="test", roles=tuple(wanted))


def dice(seed: int) -> Random:
    """Return chance that falls the same way every time."""
    return Random(seed)  # noqa: S311 (nothing is kept secret with it)


def limits(found: Plan, role: str) -> list[int]:
    return [replica.limit_mib for replica in found.replicas if replica.role == role]


def home(found: Plan, replica: str) -> int:
    return next(i for i, device in enumerate(found.devices) if replica in device.replicas)


def simple(*totals: int, policy: str = "balanced", grow: bool = True, context: int = 1, **roles: Asked) -> Plan:
    """Plan roles on devices of these MiB without headroom, so that the sums can be done in one's head."""
    return plan(ask(**roles), host(*totals), (), Rules(policy=policy, grow=grow, context_mib=context, headroom=0))


_NO_BOUND = 1_000_000


class Ground(NamedTuple):
    """A device for the exhaustive search: plannable and total MiB, and how many replicas it may take."""

    plannable: int
    total: int
    most: int = 1000


class Best(NamedTuple):
    """The largest least limit, and the best tie among the placements that reach it."""

    limit: int
    crowd: int
    homes: tuple[int, ...]


def exhaustive(grounds: Sequence[Ground], request: Request, context: int) -> Best | None:
    """Try every placement: first with the shares, then without."""
    for shares in (True, False):
        best = _best(grounds, request, context, shares=shares)
        if best is not None:
            return best
    return None


def _best(grounds: Sequence[Ground], request: Request, context: int, *, shares: bool) -> Best | None:
    found: list[tuple[int, int, tuple[int, ...]]] = []
    for numbers in product(*(list(_splits(role.count, len(grounds))) for role in request.roles)):
        worst = min(
            _device_limit(ground, tuple(of_role[i] for of_role in numbers), _needs(request, ground, shares), context)
            for i, ground in enumerate(grounds)
        )
        if worst >= 0:
            crowd, homes = 0, tuple[int, ...]()
            for i in range(len(grounds)):
                here = [of_role[i] for of_role in numbers]
                with_share = sum(n for n, role in zip(here, request.roles, strict=True) if _shares(role))
                if with_share:
                    crowd = max(crowd, sum(here))
                    homes += (i,) * with_share
            found.append((-worst, crowd, homes))
    if not found:
        return None
    first = min(found)
    return Best(-first[0], *first[1:])


def _shares(role: RoleRequest) -> bool:
    return role.memory is not None and role.memory.share is not None


def _needs(request: Request, ground: Ground, shares: bool) -> tuple[tuple[int, int, bool], ...]:
    needs = []
    for role in request.roles:
        assert role.memory is not None
        least, most = role.memory.min_mib, role.memory.max_mib or _NO_BOUND
        if shares and role.memory.share is not None:
            while least * 10_000 < role.memory.share * ground.total and least < most:
                least += 1
        needs.append((least, most, role.memory.share is None))
    return tuple(needs)


@cache
def _device_limit(
    ground: Ground, numbers: tuple[int, ...], needs: tuple[tuple[int, int, bool], ...], context: int
) -> int:
    """Return the largest limit for every elastic replica here that may have it, -1 if they do not fit.

    A large number where it is bounded by nothing here.
    """
    if sum(numbers) > ground.most:
        return -1
    limit = -1
    for x in range(ground.plannable + 2):
        taken = 0
        for number, (least, most, elastic) in zip(numbers, needs, strict=True):
            taken += number * ((min(most, max(least, x)) if elastic else least) + context)
        if taken > ground.plannable:
            break
        limit = x
    return _NO_BOUND if limit > ground.plannable else limit


def _splits(number: int, places: int) -> Iterator[tuple[int, ...]]:
    if places == 1:
        yield (number,)
        return
    for first in range(number + 1):
        for rest in _splits(number - first, places - 1):
            yield (first, *rest)


def worst_limit(found: Plan) -> int:
    """Return the least limit among the replicas of roles that ask for no share."""
    elastic = {role.name for role in found.request.roles if not _shares(role)}
    return min(replica.limit_mib for replica in found.replicas if replica.role in elastic)


def assert_sound(found: Plan) -> None:
    """Every share is counted once, every device is within its plannable memory, and every minimum is kept."""
    shares = {replica.name: replica.share_mib for replica in found.replicas}
    placed = [name for device in found.devices for name in device.replicas]
    assert sorted(placed) == sorted(shares)
    for device in found.devices:
        assert sum(shares[name] for name in device.replicas) == device.planned_mib <= device.plannable_mib
    for role in found.request.roles:
        mine = [replica for replica in found.replicas if replica.role == role.name]
        assert [replica.rank for replica in mine] == list(range(role.count))
        assert role.memory is not None
        assert all(replica.limit_mib >= role.memory.min_mib for replica in mine)
        assert all(replica.limit_mib <= (role.memory.max_mib or _NO_BOUND) for replica in mine)
        if role.memory.share is None:
            assert len({replica.limit_mib for replica in mine}) <= 1


__all__ = [
    "Asked",
    "Best",
    "Ground",
    "ask",
    "assert_sound",
    "dice",
    "exhaustive",
    "home",
    "host",
    "limits",
    "simple",
    "worst_limit",
]
