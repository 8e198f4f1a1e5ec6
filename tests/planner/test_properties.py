"""What holds for every plan, whatever the host and the request."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.errors import DoesNotFit, NeverFits
from gpusched.model.plan import Plan, Request
from gpusched.planner import Rules, plan
from gpusched.planner.solve import apportion
from tests.planner.building import ask, assert_sound, host, worst_limit

POLICIES = ("balanced", "pack", "spread", "exclusive")
totals = st.lists(st.integers(1, 40_000), min_size=1, max_size=12)
requests = st.builds(
    lambda learners, share, actors, least, judges: ask(
        learner=(learners, 500, share), actor=(actors, least), judge=(judges, 2 * least)
    ),
    st.integers(0, 2),
    st.sampled_from([0.1, 0.5, 0.75, 1.0]),
    st.integers(1, 80),
    st.integers(1, 3000),
    st.integers(0, 2),
)


def planned(request: Request, memory: list[int], used: list[int], policy: str = "balanced") -> Plan | None:
    try:
        return plan(request, host(*memory, used=used[: len(memory)]), (), Rules(policy=policy))
    except DoesNotFit:
        return None


@settings(max_examples=150)
@given(requests, totals, st.lists(st.integers(0, 9000), max_size=12), st.sampled_from(POLICIES))
def test_no_device_is_overcommitted_and_a_plan_is_reproducible(
    request: Request, memory: list[int], used: list[int], policy: str
) -> None:
    found = planned(request, memory, used, policy)
    assert found == planned(request, memory, used, policy)
    if found is not None:
        assert_sound(found)
        if policy == "exclusive":
            assert max(found.counts) <= 1


@settings(max_examples=100)
@given(requests, totals, st.lists(st.integers(0, 9000), max_size=12), st.integers(0, 11), st.integers(1, 5000))
def test_memory_that_becomes_free_never_makes_the_worst_actor_worse(
    request: Request, memory: list[int], used: list[int], where: int, more: int
) -> None:
    # Sure of its minimum only, a learner never gives way: with a share, room for that share would count first.
    roles = tuple(role for role in request.roles if role.memory and role.memory.share is None)
    request = Request(workload="test", roles=roles)
    before = planned(request, memory, used)
    if before is not None:
        freed = [max(0, mib - more) if i == where else mib for i, mib in enumerate(used)]
        after = planned(request, memory, freed)
        assert after is not None
        assert worst_limit(after) >= worst_limit(before)


@settings(max_examples=100)
@given(requests, totals)
def test_one_actor_fewer_never_makes_the_worst_actor_worse(request: Request, memory: list[int]) -> None:
    learner, actor, judge = request.roles
    before = planned(request, memory, [])
    if before is None or actor.count == 1 or learner.count:
        return
    fewer = ask(actor=(actor.count - 1, actor.memory.min_mib if actor.memory else 1))
    after = planned(Request(workload="test", roles=(learner, *fewer.roles, judge)), memory, [])
    assert after is not None
    assert worst_limit(after) >= worst_limit(before)


@settings(max_examples=100)
@given(totals, st.integers(1, 3000), st.sampled_from(POLICIES))
def test_max_is_one_less_than_the_first_number_that_does_not_fit(memory: list[int], least: int, policy: str) -> None:
    request = ask(learner=(1, 500, 0.5), actor=(1, least))
    try:
        found = plan(request, host(*memory), (), Rules(policy=policy), maximise="actor")
    except NeverFits:
        assert planned(request, memory, [], policy) is None
        return
    most = next(role.count for role in found.request.roles if role.name == "actor")
    assert planned(ask(learner=(1, 500, 0.5), actor=(most, least)), memory, [], policy) is not None
    assert planned(ask(learner=(1, 500, 0.5), actor=(most + 1, least)), memory, [], policy) is None


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.data())
def test_deal_gives_everything_away_and_nobody_too_much(capacities: list[int], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, sum(capacities)))
    dealt = apportion(capacities, number)
    assert sum(dealt) == number
    assert all(0 <= part <= capacity for part, capacity in zip(dealt, capacities, strict=True))
