"""A job that passes the head of the queue never makes it wait longer: examples, and every order in which things end."""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.errors import DoesNotFit
from gpusched.execution.plans import could_be_on, mib_lacking, on_single_devices, plan_for
from gpusched.execution.plans import is_feasible as fits_on
from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import ComputeMode, DeviceProcess, Inventory
from gpusched.model.job import CommandRequest
from gpusched.model.lease import Lease
from gpusched.model.plan import Request, RoleRequest
from gpusched.planner.capacity import DeviceCapacity, device_capacities
from gpusched.planner.command import command_fits, lacking_mib
from gpusched.planner.policies import POLICIES
from gpusched.scheduling.backfill import Ends, HeadReservation, Release, amounts_of, places_of, releases_of
from gpusched.scheduling.decision import Decision, Running
from gpusched.scheduling.forecast import FUTURES, DeviceForecast, DeviceWait
from gpusched.scheduling.machine import Machine, MachineSnapshot
from gpusched.storage.job import Job
from tests.planner.building import ask, host
from tests.scheduling.queueing import SETTINGS, decide, job, lease, leases_of, memory, part, started, submission, whole

NO_ENDS: Mapping[tuple[str, str], Ends] = MappingProxyType({})
HEAD = 1.0
BEHIND = 2.0


def behind(need: CommandRequest | Request, **fields: object) -> Job:
    return job("behind", need, created=BEHIND, **fields)


def passes(
    head: CommandRequest | Request, candidate: Job, inventory: Inventory, *leases: Lease, by: float | None
) -> bool:
    """Return whether `candidate` starts while `head` waits; all of `leases` are ours and end at `by`."""
    running = [Running(id=name, run_dir=f"/jobs/{name}", ends_at=by) for name in sorted({one.job for one in leases})]
    decision = decide([job("head", head, created=HEAD), candidate], inventory, leases, running)
    assert "head" in decision.why
    return started(decision) == ["behind"]


def test_a_job_that_is_over_in_time_passes_and_one_that_is_not_waits() -> None:
    for limit, goes in ((60.0, True), (100.0, True), (101.0, False), (None, False)):
        candidate = behind(part(0.4), time_limit_s=limit)
        assert passes(whole(1), candidate, host(100), lease("old", 60), by=100.0) is goes, limit


def test_without_known_ends_only_what_is_harmless_passes() -> None:
    assert not passes(whole(1), behind(part(0.4), time_limit_s=1.0), host(100), lease("old", 60), by=None)


def test_a_device_that_the_head_could_never_be_on_is_free_for_others() -> None:
    assert passes(memory(90), behind(memory(20)), host(100, 50), lease("old", 60), by=None)
    assert passes(memory(90), behind(part(0.4)), host(50, 100), lease("old", 60, 1), by=None)


def test_a_job_is_planned_around_the_devices_of_the_head_where_that_is_possible() -> None:
    # By itself it would go to GPU 0, which is no longer whole.
    head, candidate = job("head", whole(1), created=HEAD, only=("GPU-0",)), behind(memory(20))
    decision = decide([head, candidate], host(100, 100), [lease("old", 60)])
    assert started(decision) == ["behind"]
    assert decision.starts[0].plan.counts == (1,)
    assert decision.starts[0].plan.devices[0].uuid == "GPU-1"


def test_room_that_is_left_whatever_ends_is_free_for_others() -> None:
    # The head needs 61: as soon as `old` ends there is room for it beside 30 more, and before that there is none.
    assert passes(memory(60), behind(memory(29)), host(100), lease("old", 60), by=None)
    assert not passes(memory(60), behind(memory(39)), host(100), lease("old", 60), by=None)


def test_jobs_that_are_harmless_one_by_one_and_not_together_do_not_all_pass() -> None:
    for second, goes in ((20, True), (23, False), (15, True)):
        jobs = [job("head", memory(60), created=HEAD), behind(memory(15))]
        jobs.append(job("second", memory(second), created=BEHIND + 1))
        decision = decide(jobs, host(100), [lease("old", 60)])
        assert started(decision) == ["behind", "second"][: 1 + goes], second
    equal = [behind(memory(19)), job("second", memory(19), created=BEHIND + 1)]
    decision = decide([job("head", memory(60), created=HEAD), *equal], host(100), [lease("old", 60)])
    assert started(decision) == ["behind"]


def test_what_could_be_in_the_way_in_one_order_of_ends_waits() -> None:
    # When the one of 30 ends, 65 are free and the head fits; beside 9 more it would not.
    leases = (lease("small", 30), lease("large", 35))
    assert not passes(memory(60), behind(memory(8)), host(100), *leases, by=None)
    assert passes(memory(60), behind(memory(3)), host(100), *leases, by=None)


def test_who_has_a_whole_device_takes_all_of_it_whatever_its_share_is() -> None:
    capacities = device_capacities(host(100, 50), (), 0, None)
    assert amounts_of([lease("a", 80, whole=True), lease("a", 20, 1)], places_of(capacities)) == ((0, 100), (1, 20))


def test_memory_of_others_may_end_too() -> None:
    process = DeviceProcess(pid=4711, user="bob", memory_mib=50)
    inventory = host(100, used=[50])
    inventory = replace(inventory, devices=(replace(inventory.devices[0], processes=(process,)),))
    assert not passes(memory(80), behind(memory(20)), inventory, by=None)
    assert passes(memory(80), behind(memory(15)), inventory, by=None)


def test_two_that_are_each_in_time_may_both_pass_and_the_head_still_starts_then() -> None:
    running = [Running(id="old", run_dir="/jobs/old", ends_at=100.0)]
    jobs = [job("head", whole(1), created=HEAD), *(behind(part(0.2), time_limit_s=90.0) for _ in range(2))]
    jobs[2] = replace(jobs[2], id="further")
    assert started(decide(jobs, host(100), [lease("old", 60)], running)) == ["behind", "further"]


def test_a_job_that_is_over_in_time_passes_behind_however_many_that_are_not() -> None:
    running = [Running(id="old", run_dir="/jobs/old", ends_at=100.0)]
    crowd = [job(f"run-{i}", memory(1 + i), created=BEHIND) for i in range(38)]
    jobs = [job("head", whole(1), created=HEAD), *crowd, job("short", part(0.4), created=9.0, time_limit_s=5.0)]
    assert started(decide(jobs, host(100), [lease("old", 60)], running)) == ["short"]


def test_a_job_that_has_overrun_its_time_promises_nothing() -> None:
    running = [Running(id="old", run_dir="/jobs/old", ends_at=100.0)]
    jobs = [job("head", whole(1), created=HEAD), behind(part(0.2), time_limit_s=1.0)]
    assert started(decide(jobs, host(100), [lease("old", 60)], running, now=100.5)) == []


def test_where_there_are_too_many_ways_to_end_nothing_is_called_harmless() -> None:
    def reservation(looks: int) -> HeadReservation:
        capacities = device_capacities(host(100), [lease(f"run-{i}", 10 + i) for i in range(4)], 0, None)
        releases = [Release(((0, 10 + i),)) for i in range(4)]
        return HeadReservation(capacities, releases, lambda after: after[0].plannable_mib >= 80, looks)

    assert reservation(1000).never_delays_head([lease("new", 1)])
    assert not reservation(10).never_delays_head([lease("new", 1)])


commands = st.one_of(st.just(whole(1)), st.integers(1, 90).map(memory), st.sampled_from([0.2, 0.4, 0.5, 1.0]).map(part))
kinds_of_devices = st.sampled_from(
    [
        (100, 0, "default", None, None),
        (50, 0, "default", None, None),
        (100, 1, "default", 0, None),
        (100, 21, "default", None, None),
        (100, 21, "default", None, ("G", 20)),
        (100, 21, "default", None, ("C", 20)),
        (100, 21, "exclusive_process", None, ("G", 20)),
    ]
)


@settings(max_examples=300)
@given(st.lists(kinds_of_devices, min_size=6, max_size=9), commands, st.lists(st.integers(0, 8), max_size=8))
def test_what_a_head_waits_for_on_a_device_is_the_same_whatever_the_others_are(
    kinds: list[tuple[int, int, ComputeMode, int | None, tuple[str, int] | None]],
    need: CommandRequest,
    held: list[int],
) -> None:
    devices = tuple(
        replace(
            host(*[total] * len(kinds), used=[used] * len(kinds)).devices[place],
            compute_mode=mode,
            mig_index=mig,
            processes=() if other is None else (DeviceProcess(pid=4711 + place, kind=other[0], memory_mib=other[1]),),
        )
        for place, (total, used, mode, mig, other) in enumerate(kinds)
    )
    leases = [lease(f"old-{i}", 30, place) for i, place in enumerate(held) if place < len(kinds)]
    capacities = device_capacities(replace(host(100), devices=devices), leases, 0, None)

    def waits(some: Sequence[DeviceCapacity]) -> list[DeviceWait]:
        head = HeadReservation(some, releases_of(some, leases, {}), lambda on: command_fits(need, on, 1), 100, 1)
        return list(head.waits(lambda on: lacking_mib(need, on, 1)).values())

    assert waits(capacities) == [wait for one in capacities for wait in waits([one])]


needs = st.one_of(
    st.integers(1, 2).map(whole),
    st.integers(1, 90).map(memory),
    st.sampled_from([0.2, 0.4, 0.5, 1.0]).map(part),
    st.builds(lambda count, least: ask(actor=(count, least)), st.integers(1, 4), st.integers(1, 40)),
    st.builds(lambda count: ask(learner=(1, 30, 0.5), actor=(count, 20)), st.integers(1, 3)),
)
spread = st.tuples(st.sampled_from([None, "bob"]), st.dictionaries(st.integers(0, 2), st.integers(1, 60), min_size=1))
totals = st.lists(st.integers(60, 120), min_size=1, max_size=3)


def fits(one: Job, inventory: Inventory, leases: Sequence[Lease]) -> bool:
    assert one.submission is not None
    try:
        plan_for(one.submission, inventory, leases, SETTINGS)
    except DoesNotFit:
        return False
    return True


def all_ends(releases: Sequence[int]) -> chain[tuple[int, ...]]:
    return chain.from_iterable(combinations(releases, number) for number in range(len(releases) + 1))


def no_more_than_there_is(inventory: Inventory, used: Sequence[int], leases: Sequence[Lease]) -> list[Lease]:
    free = [(device.memory_total_mib or 0) - used[i] for i, device in enumerate(inventory.devices)]
    kept = []
    for one in leases:
        device = int(one.device_uuid.removeprefix("GPU-"))
        if device < len(free) and one.share_mib <= free[device]:
            free[device] -= one.share_mib
            kept.append(one)
    return kept


def situation(
    memory_mib: list[int], used: list[int], holders: list[tuple[str | None, dict[int, int]]]
) -> tuple[Inventory, list[int], list[Lease]]:
    used = [min(mib, total) for mib, total in zip([*used, 0, 0, 0], memory_mib, strict=False)]
    inventory = host(*memory_mib, used=used)
    asked = [
        lease(f"old-{i}", share, device, user=user)
        for i, (user, shares) in enumerate(holders)
        for device, share in shares.items()
    ]
    return inventory, used, no_more_than_there_is(inventory, used, asked)


@settings(max_examples=400)
@given(
    st.lists(needs, min_size=2, max_size=6),
    totals,
    st.lists(st.integers(0, 60), max_size=3),
    st.lists(spread, max_size=4),
)
def test_whatever_ends_first_the_head_never_waits_for_one_that_passed_it(
    asked: list[CommandRequest | Request],
    memory_mib: list[int],
    used: list[int],
    holders: list[tuple[str | None, dict[int, int]]],
) -> None:
    inventory, used, leases = situation(memory_mib, used, holders)
    jobs = [job(f"j-{i}", need, created=i) for i, need in enumerate(asked)]
    decision = decide(jobs, inventory, leases)
    head = next((one for one in jobs if one.id in decision.why and one.id not in decision.never), None)
    if head is None:
        return
    before, passed = _started_before_and_after(decision, head, jobs)
    if not passed:
        return
    names = sorted({one.job for one in (*leases, *before)})
    for ended in all_ends(_that_end(names, used)):
        gone = {names[i] for i in ended if i < len(names)}
        there = host(*memory_mib, used=[0 if len(names) + i in ended else mib for i, mib in enumerate(used)])
        left = [one for one in (*leases, *before) if one.job not in gone]
        if fits(head, there, left):
            assert fits(head, there, [*left, *passed]), (ended, names)


def _that_end(names: Sequence[str], used: Sequence[int]) -> list[int]:
    """Return the numbers of all that may end: of the jobs, and behind them of what uses a device unleased."""
    return [*range(len(names)), *(len(names) + i for i, mib in enumerate(used) if mib)]


def _started_before_and_after(decision: Decision, head: Job, jobs: Sequence[Job]) -> tuple[list[Lease], list[Lease]]:
    """Return what those hold that started before the head was looked at, and those after it."""
    first = [one.id for one in jobs[: jobs.index(head)]]
    held = list(leases_of(decision))
    return [one for one in held if one.job in first], [one for one in held if one.job not in first]


@settings(max_examples=200)
@given(
    needs, totals, st.lists(st.integers(0, 60), max_size=3), st.lists(spread, max_size=4), st.sets(st.integers(0, 2))
)
def test_what_a_job_would_hold_is_what_its_plan_gives_it(
    need: CommandRequest | Request,
    memory_mib: list[int],
    used: list[int],
    holders: list[tuple[str | None, dict[int, int]]],
    avoided: set[int],
) -> None:
    inventory, _, leases = situation(memory_mib, used, holders)
    machine = Machine(MachineSnapshot(inventory=inventory, leases=tuple(leases)), {}, SETTINGS)
    asked, avoid = submission(need), frozenset(f"GPU-{device}" for device in avoided)
    try:
        planned = leases_of_plan(machine.plan(asked, avoid), "x")
    except DoesNotFit:
        planned = None
    found = machine.leases_without(asked, avoid, "x")
    assert (found and found[0]) == planned


alone = st.one_of(
    st.integers(1, 2).map(whole),
    st.integers(1, 90).map(memory),
    st.sampled_from([0.2, 0.5, 1.0]).map(part),
    st.builds(
        lambda least, share: ask(actor=(1, least, share) if share else (1, least)),
        st.integers(1, 90),
        st.sampled_from([None, 0.3]),
    ),
    st.builds(
        lambda devices: Request(
            workload="towers", roles=(RoleRequest(name="learner", count=1, memory=None, devices=devices),)
        ),
        st.integers(1, 2),
    ),
)


@settings(max_examples=300)
@given(
    alone, totals, st.lists(st.integers(0, 60), max_size=3), st.lists(spread, max_size=4), st.sampled_from([*POLICIES])
)
def test_what_is_one_process_fits_where_enough_devices_have_room_and_none_lacks_any(
    need: CommandRequest | Request,
    memory_mib: list[int],
    used: list[int],
    holders: list[tuple[str | None, dict[int, int]]],
    policy: str,
) -> None:
    inventory, _, leases = situation(memory_mib, used, holders)
    asked = submission(need, policy=policy if isinstance(need, Request) else None)
    single, number = on_single_devices(asked)
    assert number is not None
    every = device_capacities(inventory, leases, 0, None)
    with_room = [one for one in every if could_be_on(asked, one, SETTINGS) and fits_on(single, [one], SETTINGS)]
    assert fits_on(asked, every, SETTINGS) == (len(with_room) >= number)
    for one in every:
        if could_be_on(asked, one, SETTINGS):
            assert (mib_lacking(asked, one, SETTINGS) == 0) == (one in with_room)


@settings(max_examples=200)
@given(needs, totals, st.lists(st.integers(0, 60), max_size=3), st.lists(spread, max_size=4), spread)
def test_harmless_is_what_trying_every_set_of_ends_says(
    need: CommandRequest | Request,
    memory_mib: list[int],
    used: list[int],
    holders: list[tuple[str | None, dict[int, int]]],
    candidate: tuple[str | None, dict[int, int]],
) -> None:
    inventory, used, leases = situation(memory_mib, used, holders)
    mine = [lease("new", share, device) for device, share in candidate[1].items() if device < len(memory_mib)]
    head = job("head", need)
    if fits(head, inventory, leases) or not fits(head, host(*memory_mib), ()):
        return
    names = sorted({one.job for one in leases})
    harmful = False
    for ended in all_ends(_that_end(names, used)):
        gone = {names[i] for i in ended if i < len(names)}
        there = host(*memory_mib, used=[0 if len(names) + i in ended else mib for i, mib in enumerate(used)])
        left = [one for one in leases if one.job not in gone]
        harmful |= fits(head, there, left) and not fits(head, there, [*left, *mine])
    assert _reservation(head, inventory, leases).never_delays_head(mine) is not harmful


def test_after_one_has_passed_in_time_the_next_is_proved_beside_it() -> None:
    # Of three devices `old` is gone by 1000 at the latest, `far` is unknown, GPU 1 is free. B asks for a proof first.
    running = [Running(id="old", run_dir="/jobs/old", ends_at=1000.0), Running(id="far", run_dir="/jobs/far")]
    held = [lease("old", 60), lease("far", 60, 2)]
    jobs = [
        job("head", whole(2), created=1.0),
        job("B", part(0.5), created=2.0),
        job("A", memory(45), created=3.0, time_limit_s=90.0),
        job("C", memory(42), created=4.0),  # beside A on GPU 1, where the head would wait for it
    ]
    assert started(decide(jobs, host(100, 100, 100), held, running)) == ["A"]


@settings(max_examples=200)
@given(needs, totals, st.lists(spread, max_size=4), spread, spread)
def test_harmless_beside_one_that_passed_unproved_is_what_trying_every_set_of_ends_says(
    need: CommandRequest | Request,
    memory_mib: list[int],
    holders: list[tuple[str | None, dict[int, int]]],
    passer: tuple[str | None, dict[int, int]],
    candidate: tuple[str | None, dict[int, int]],
) -> None:
    inventory, _, leases = situation(memory_mib, [], holders)
    mine, passed = (
        [lease(name, share, device) for device, share in one[1].items() if device < len(memory_mib)]
        for name, one in (("new", candidate), ("passed", passer))
    )
    head = job("head", need)
    if fits(head, inventory, leases) or not fits(head, host(*memory_mib), ()):
        return
    reservation = _reservation(head, inventory, leases)
    reservation.never_delays_head(mine)  # so that what was found out for it is there
    reservation.admit(passed, Ends())
    held = [*leases, *passed]
    names = sorted({one.job for one in held})
    harmful = False
    for ended in all_ends(range(len(names))):
        left = [one for one in held if one.job not in {names[i] for i in ended}]
        there = host(*memory_mib)
        harmful |= fits(head, there, left) and not fits(head, there, [*left, *mine])
    assert not (reservation.never_delays_head(mine) and harmful)


@given(
    st.sampled_from([whole(1), whole(2), whole(3), part(0.5), memory(40)]),
    totals,
    st.lists(st.tuples(spread, st.lists(st.floats(0, 100), min_size=FUTURES, max_size=FUTURES)), max_size=5),
)
def test_a_start_found_end_by_end_is_the_one_that_is_found_device_by_device(
    need: CommandRequest,
    memory_mib: list[int],
    holders: list[tuple[tuple[str | None, dict[int, int]], list[float]]],
) -> None:
    inventory, _, leases = situation(memory_mib, [], [holder for holder, _ in holders])
    head, now = job("head", need), 50.0
    asked = head.submission
    assert asked is not None
    names = sorted({(one.job_label, one.run_dir) for one in leases})
    ends = {name: Ends(None, tuple(ends)) for name, (_, ends) in zip(names, holders, strict=False)}
    reservation = _reservation(head, inventory, leases, ends)
    number = on_single_devices(asked)[1] or 1
    by_device = DeviceForecast(reservation.waits(lambda one: mib_lacking(asked, one, SETTINGS)), number, now).starts
    for one_in in (3, 6):
        assert reservation.starts(now, one_in)[::one_in] == by_device[::one_in]


def _reservation(
    head: Job, inventory: Inventory, leases: Sequence[Lease], ends: Mapping[tuple[str, str], Ends] = NO_ENDS
) -> HeadReservation:
    asked = head.submission
    assert asked is not None
    capacities = [one for one in device_capacities(inventory, leases, 0, None) if could_be_on(asked, one, SETTINGS)]
    single, number = on_single_devices(asked)
    releases = releases_of(capacities, leases, ends)
    return HeadReservation(capacities, releases, lambda after: fits_on(single, after, SETTINGS), 10_000, number)
