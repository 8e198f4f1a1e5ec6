"""The planner against exhaustive search: the same worst actor, the same ties, the same "no", never a MiB too much."""

from itertools import combinations
from random import Random

import pytest
from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Request
from gpusched.planner import Rules, plan
from tests.planner.building import Ground, ask, assert_sound, dice, exhaustive, host, worst_limit

OURS, THEIRS = 100, 900


class Case:
    """A random host with leases, foreign processes, reserves and exclusive devices, and what may be planned on it."""

    def __init__(self, chance: Random, devices: int) -> None:
        self.context = chance.randint(1, 4)
        self.headroom = chance.choice([0, 200, 1000])
        self.leases: list[Lease] = []
        self.now: list[Ground] = []
        self.idle: list[Ground] = []
        self.whole: list[bool] = []
        self.inventory = host(*(chance.choice([20, 33, 40, 40, 64]) for _ in range(devices)))
        rows = [self._device(chance, i) for i in range(devices)]
        self.inventory = replace(self.inventory, devices=tuple(rows))

    def _device(self, chance: Random, i: int) -> Device:
        device = self.inventory.devices[i]
        total = device.memory_total_mib or 0
        reserved, leased, foreign = (chance.choice([0, 0, chance.randint(1, 9)]) for _ in range(3))
        own = chance.randint(0, leased)
        alone = chance.random() < 0.15
        processes = []
        if leased:
            pid = OURS + i if chance.random() < 0.7 else None
            self.leases.append(Lease(device_uuid=device.uuid, share_mib=leased, job="j", replica="r", pid=pid))
            known = own if chance.random() < 0.5 else None
            own = (own if known is not None else leased) if pid else 0
            processes += [DeviceProcess(pid=pid, memory_mib=known)] if pid else []
        if foreign:
            processes.append(DeviceProcess(pid=THEIRS + i, memory_mib=foreign))
        idle = max(0, total - reserved - total * self.headroom // 10_000)
        taken = alone and (leased or foreign)
        most = 1 if alone else 1000
        self.now.append(Ground(max(0, idle - leased - foreign), total, 0 if taken else most))
        self.idle.append(Ground(idle, total, most))
        self.whole.append(not leased and not foreign and 2 * self.now[-1].plannable >= idle)
        return replace(
            device,
            memory_used_mib=foreign + own,
            memory_reserved_mib=reserved,
            compute_mode="exclusive_process" if alone else "default",
            processes=tuple(processes),
        )

    def rules(self, policy: str = "balanced") -> Rules:
        return Rules(policy=policy, context_mib=self.context, headroom=self.headroom)

    def plan(self, request: Request, policy: str = "balanced", *, grow: bool = True) -> Plan:
        return plan(request, self.inventory, self.leases, replace(self.rules(policy), grow=grow))


def check(case: Case, request: Request) -> str:
    """Compare one case with exhaustive search and return what came out."""
    best = exhaustive(case.now, request, case.context)
    if best is None:
        fits_idle = exhaustive(case.idle, request, case.context) is not None
        with pytest.raises(DoesNotFit) as raised:
            case.plan(request)
        assert type(raised.value) is (NotNow if fits_idle else NeverFits)
        return raised.value.code
    found = case.plan(request)
    assert_sound(found)
    for device, ground in zip(found.devices, case.now, strict=True):
        assert device.plannable_mib == ground.plannable
        assert len(device.replicas) <= ground.most
    if any(role.count and role.memory and role.memory.share is None for role in request.roles):
        assert worst_limit(found) == worst_at(best.limit, request)
    learners = [i for i, device in enumerate(found.devices) for name in device.replicas if name.startswith("learner")]
    assert max((len(found.devices[i].replicas) for i in learners), default=0) == best.crowd
    if len(learners) == 1:
        assert tuple(learners) == best.homes
    return "fits"


def worst_at(x: int, request: Request) -> int:
    """Return the least limit of a role without a share, where each gets `x` MiB that may have as much."""
    return min(
        max(role.memory.min_mib, min(role.memory.max_mib or x, x))
        for role in request.roles
        if role.memory and role.memory.share is None and role.count
    )


def test_500_random_small_cases_equal_exhaustive_search() -> None:
    chance = dice(20)
    outcomes = []
    for _ in range(500):
        case = Case(chance, chance.randint(1, 4))
        learner = (1, chance.randint(1, 12), chance.choice([0.25, 0.5, 0.75, 0.9]))
        request = ask(learner=learner, actor=(chance.randint(0, 12), chance.randint(1, 9)))
        outcomes.append(check(case, request))
    assert min(outcomes.count(kind) for kind in ("fits", "never-fits", "not-now")) >= 20, "the cases must vary"


def test_two_elastic_roles_and_two_learners_equal_exhaustive_search() -> None:
    chance = dice(21)
    outcomes = []
    for _ in range(300):
        case = Case(chance, chance.randint(1, 3))
        request = ask(
            learner=(chance.randint(0, 2), chance.randint(1, 9), chance.choice([0.2, 0.4, 0.75])),
            actor=(chance.randint(1, 5), chance.randint(1, 6)),
            evaluator=(chance.randint(0, 3), chance.randint(4, 16)),
        )
        outcomes.append(check(case, request))
    assert outcomes.count("fits") > 100


def test_workloads_without_a_learner_equal_exhaustive_search() -> None:
    chance = dice(22)
    for _ in range(150):
        case = Case(chance, chance.randint(1, 4))
        check(case, ask(actor=(chance.randint(1, 8), chance.randint(1, 9)), critic=(chance.randint(0, 2), 7)))


def test_maxima_equal_exhaustive_search() -> None:
    chance = dice(26)
    outcomes = []
    for _ in range(300):
        case = Case(chance, chance.randint(1, 3))
        least = [chance.randint(1, 9) for _ in range(3)]
        most = [mib + chance.randint(0, 12) for mib in least]
        request = ask(
            learner=(chance.randint(0, 2), least[0], chance.choice([0.2, 0.5, 0.75]), most[0]),
            actor=(chance.randint(1, 6), least[1], None, most[1]),
            evaluator=(chance.randint(0, 2), least[2], None, chance.choice([None, most[2]])),
        )
        outcomes.append(check(case, request))
    assert outcomes.count("fits") > 100


def test_who_does_not_grow_fits_where_it_would_and_gets_its_minimum() -> None:
    chance = dice(27)
    fitted = 0
    for _ in range(200):
        case = Case(chance, chance.randint(1, 4))
        request = ask(
            learner=(1, chance.randint(1, 12), 0.5), actor=(chance.randint(0, 8), chance.randint(1, 9), None, 12)
        )
        policy = chance.choice(["balanced", "pack", "spread"])
        if exhaustive(case.now, request, case.context) is None:
            with pytest.raises(DoesNotFit):
                case.plan(request, policy, grow=False)
            continue
        found = case.plan(request, policy, grow=False)
        assert_sound(found)
        least = {role.name: role.memory.min_mib for role in request.roles if role.memory}
        assert all(replica.limit_mib == least[replica.role] for replica in found.replicas)
        fitted += 1
    assert fitted > 50


@pytest.mark.parametrize("grow", [True, False])
@pytest.mark.parametrize("roles", ["one process", "one of each", "several"])
def test_pack_takes_the_fewest_devices_and_the_fullest_set_of_them(roles: str, grow: bool) -> None:
    chance = dice(23)
    compared = 0
    for _ in range(120):
        case = Case(chance, chance.randint(1, 4))
        if roles == "several":
            wanted = ask(learner=(2, 4, 0.3), actor=(chance.randint(1, 4), 3), evaluator=(1, chance.randint(3, 12)))
        elif roles == "one of each":
            wanted = ask(learner=(1, 4, 0.5), actor=(chance.randint(1, 8), chance.randint(1, 6)))
        else:
            wanted = ask(actor=(1, chance.randint(1, 20)))
        best = packed(case, wanted, grow=grow)
        if best is None:
            continue
        found = case.plan(wanted, "pack", grow=grow)
        assert_sound(found)
        used, limit = best
        assert {i for i, device in enumerate(found.devices) if device.replicas} == used
        assert worst_limit(found) == (limit if grow else worst_at(0, wanted))
        compared += 1
    assert compared > 30


def packed(case: Case, request: Request, *, grow: bool) -> tuple[set[int], int] | None:
    """Return the fullest of the smallest sets of devices that are enough, and the worst limit there.

    All sets are tried: shares first, if it grows, then without.
    """
    emptiest_first = sorted(
        range(len(case.now)),
        key=lambda i: (not case.whole[i], -case.now[i].plannable, -case.now[i].total, -case.now[i].most, -i),
    )
    for wanted in (request, without_shares(request)) if grow else (without_shares(request),):
        for few in range(1, len(case.now) + 1):
            found = [
                ([i not in chosen for i in emptiest_first], set(chosen), worst_at(best.limit, request))
                for chosen in combinations(range(len(case.now)), few)
                if (best := exhaustive([case.now[i] for i in chosen], wanted, case.context)) is not None
                if wanted is not request or shares_hold(tuple(case.now[i] for i in chosen), request, case.context)
            ]
            if found:
                *_, used, limit = max(found, key=lambda one: one[0])
                return used, limit
    return None


def without_shares(request: Request) -> Request:
    roles = (
        role
        if role.memory is None or role.memory.share is None
        else replace(role, memory=replace(role.memory, share=0))
        for role in request.roles
    )
    return replace(request, roles=tuple(roles))


def shares_hold(chosen: tuple[Ground, ...], request: Request, context: int) -> bool:
    from tests.planner import building

    return building._best(chosen, request, context, shares=True) is not None


@pytest.mark.parametrize("grow", [True, False])
def test_spread_has_the_lowest_fullest_device(grow: bool) -> None:
    chance = dice(24)
    compared = 0
    for _ in range(120):
        case = Case(chance, chance.randint(1, 4))
        request = ask(learner=(1, 4, 0.5), actor=(chance.randint(0, 8), chance.randint(1, 6)))
        for most in range(10):
            bounded = [ground._replace(most=min(ground.most, most)) for ground in case.now]
            least = request if grow else without_shares(request)
            if shares_hold(tuple(bounded), least, case.context):
                found = case.plan(request, "spread", grow=grow)
                assert_sound(found)
                assert max(found.counts) == most
                compared += 1
                break
    assert compared > 30


def test_a_thousand_devices_and_ten_thousand_actors() -> None:
    chance = dice(25)
    inventory: Inventory = host(*(chance.randint(16_000, 90_000) for _ in range(1000)))
    found = plan(ask(learner=(1, 2048, 0.75), actor=(10_000, 512)), inventory)
    assert_sound(found)
    assert sum(found.counts) == 10_001
    assert worst_limit(found) > 4000


def test_many_sizes_are_quickly_planned_where_there_is_room_for_all() -> None:
    sizes = {f"role{i}": (20, 700 + 900 * i) for i in range(6)}
    found = plan(ask(learner=(1, 2048, 0.75), **sizes), host(*[81_920] * 8))
    assert_sound(found)
    assert sum(found.counts) == 121


@pytest.mark.parametrize("sizes", [(700, 900), (700, 900, 1100), (700, 900, 1100, 1300)])
def test_many_sizes_that_do_not_grow_are_packed_as_far_as_a_short_search_goes(sizes: tuple[int, ...]) -> None:
    roles = {f"role{mib}": (8, mib) for mib in sizes}
    for grow in (True, False):
        found = plan(ask(actor=(60, 500), **roles), host(*[24_000] * 8), (), Rules(policy="pack", grow=grow))
        assert_sound(found)
        assert sum(found.counts) == 60 + 8 * len(sizes)
