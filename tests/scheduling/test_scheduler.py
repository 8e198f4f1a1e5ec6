"""Who starts and why the others wait: the textbook cases, the order, the bounds, and long runs on a virtual clock."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.model.device import DeviceProcess, Inventory
from gpusched.model.job import CommandRequest
from gpusched.model.lease import Lease
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.workload import Role, Workload
from gpusched.scheduling.decision import Decision, Running
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.scheduler import schedule
from gpusched.storage.job import Job
from tests.planner.building import ask, host
from tests.scheduling.queueing import SETTINGS, decide, job, lease, leases_of, memory, part, started, whole


def lost(inventory: Inventory, device: int) -> Inventory:
    devices = list(inventory.devices)
    devices[device] = replace(devices[device], health="error", problem="drained: Xid 79")
    return replace(inventory, devices=tuple(devices))


def held_by_bob(inventory: Inventory, device: int, mib: int) -> Inventory:
    devices = list(inventory.devices)
    process = DeviceProcess(pid=4711, user="bob", memory_mib=mib)
    devices[device] = replace(devices[device], memory_used_mib=mib, processes=(process,))
    return replace(inventory, devices=tuple(devices))


def test_of_three_programs_at_two_fifths_the_third_waits_and_is_told_for_whom() -> None:
    decision = decide([job(f"run-{i}", part(0.4), created=i) for i in (1, 2, 3)], host(100))
    assert started(decision) == ["run-1", "run-2"]
    assert decision.why == {
        "run-3": "needs 0.4 of one GPU, 40 of 100 MiB; "
        "GPU 0 has 20 of 100 MiB free, 40 MiB leased to run-1, 40 MiB leased to run-2"
    }


def test_two_halves_run_together() -> None:
    assert started(decide([job(f"run-{i}", part(0.5), created=i) for i in (1, 2, 3)], host(100))) == ["run-1", "run-2"]


def test_whole_devices_are_given_while_parts_are_packed_on_others() -> None:
    jobs = [job(f"run-{i}", part(0.5), created=i) for i in (1, 2)] + [job("run-3", whole(2), created=3)]
    decision = decide(jobs, host(100, 100, 100))
    assert started(decision) == ["run-1", "run-2", "run-3"]
    assert [start.plan.counts for start in decision.starts] == [(1, 0, 0), (1, 0, 0), (0, 1, 1)]


def test_a_job_starts_with_all_its_replicas_or_none() -> None:
    team = job("snake-1", ask(learner=(1, 50, 0.5), actor=(4, 30)), created=1)
    assert started(decide([team], host(100, 100), [lease("run-1", 30)])) == []
    assert started(decide([team], host(100, 100))) == ["snake-1"]


def test_priority_goes_before_age_and_age_before_the_name() -> None:
    jobs = [
        job("late", part(0.6), created=2),
        job("b", part(0.6), created=1),
        job("a", part(0.6), created=1),
        job("urgent", part(0.6), created=3, priority=5),
        job("humble", part(0.6), created=0, priority=-5),
    ]
    assert started(decide(jobs, host(100, 100, 100))) == ["urgent", "a", "b"]


def test_a_blocked_job_says_why_and_holds_up_nobody() -> None:
    jobs = [job("run-1", whole(1), created=1), job("run-2", whole(1), created=2)]
    decision = decide(jobs, host(100), blocked={"run-1": "waits for snake-1"})
    assert started(decision) == ["run-2"]
    assert decision.why == {"run-1": "waits for snake-1"}


def test_a_job_that_can_no_longer_fit_is_told_apart_and_holds_up_nobody() -> None:
    jobs = [job("run-1", whole(2), created=1), job("run-2", part(0.5), created=2), job("run-3", part(0.6), created=3)]
    decision = decide(jobs, lost(host(100, 100), 0))
    assert started(decision) == ["run-2"]
    assert list(decision.never) == ["run-1"]
    assert decision.why["run-1"] == (
        "needs 2 whole GPUs, and all that it could have on an idle host is 1 GPU of up to 100 MiB; "
        "GPU 0 takes no replica: it is drained: Xid 79"
    )
    assert "run-3" not in decision.never


def test_a_job_of_which_nothing_is_known_that_it_asks_for_never_starts_and_holds_up_nobody() -> None:
    nothing = job("nothing", whole(1), command=None, created=1.0)
    for first in ((), (job("head", whole(1)),)):
        decision = decide([*first, nothing, job("cpu", whole(0), created=2.0)], host(100), [lease("old", 60)])
        assert list(decision.never) == ["nothing"]
        assert started(decision) == ["cpu"]
        assert decision.faults == {}


def test_a_device_that_is_named_and_no_longer_here_is_told() -> None:
    gone = job("run-1", whole(1), only=("GPU-77",))
    decision = decide([gone, job("run-2", whole(1), created=1)], host(100))
    assert started(decision) == ["run-2"]
    assert decision.why["run-1"] == "none of its devices is here: GPU-77"


def test_a_driver_that_does_not_work_keeps_jobs_waiting_but_for_those_without_a_device() -> None:
    broken = replace(host(), problem="driver and library do not match")
    jobs = [job("run-1", whole(1)), job("snake-1", ask(actor=(1, 5)), created=1), job("run-2", whole(0), created=2)]
    decision = decide(jobs, broken)
    assert started(decision) == ["run-2"]
    assert decision.why == dict.fromkeys(("run-1", "snake-1"), "driver and library do not match")
    assert decision.never == {}


def test_a_workload_runs_without_limits_where_there_is_no_device() -> None:
    decision = decide([job("snake-1", ask(actor=(3, 5))), job("run-1", whole(1), created=1)], host())
    assert started(decision) == ["snake-1"]
    assert list(decision.never) == ["run-1"]


def test_a_role_that_asks_for_whole_devices_waits_until_they_are_whole() -> None:
    learner = RoleRequest(name="learner", count=1, memory=None, devices=2)
    towers = job("towers-1", Request(workload="towers", roles=(learner, *ask(actor=(1, 5)).roles)))
    here = host(100, 100, 100)
    waiting = decide([towers], here, [lease("old", 50), lease("older", 50, device=1)])
    assert waiting.why["towers-1"] == (
        "needs 2 whole GPUs (learner) + 6 MiB (actor); "
        "GPU 0 has 50 of 100 MiB free, 50 MiB leased to old; GPU 1 has 50 of 100 MiB free, 50 MiB leased to older"
    )
    decision = decide([towers], here, [lease("old", 50)])
    assert started(decision) == ["towers-1"]
    assert list(decide([towers], host(100, 100)).never) == ["towers-1"], "the actor has no place beside it"


def test_no_more_jobs_live_than_may_whatever_they_need() -> None:
    jobs = [job(f"run-{i}", whole(0), created=i) for i in range(4)]
    running = [Running(id="old", run_dir="/jobs/old")]
    decision = decide(jobs, host(100), running=running, settings=replace(SETTINGS, most_jobs=3))
    assert started(decision) == ["run-0", "run-1"]
    assert decision.why["run-3"] == "3 jobs run and at most 3 may (most_jobs in the configuration)"


def test_the_last_place_is_kept_for_a_head_that_waits_for_others_only() -> None:
    jobs = [job("run-1", whole(1), created=1), job("run-2", whole(0), created=2), job("run-3", whole(0), created=3)]
    rules = replace(SETTINGS, most_jobs=2)
    assert started(decide(jobs, held_by_bob(host(100), 0, 90), settings=rules)) == ["run-2"]
    # Here the head waits for a job of ours, whose end leaves it a place.
    ours = decide(jobs, host(100), [lease("old", 50)], settings=rules)
    assert started(ours) == ["run-2"]
    assert "at most 2 may" in ours.why["run-3"]


def test_machines_have_queues_of_their_own_and_one_bound() -> None:
    jobs = [
        job("run-1", whole(2), created=1),
        job("run-2", part(0.6), created=2),
        job("sim-1", whole(1), created=3, machine="1x100MiB"),
        job("sim-2", whole(1), created=4, machine="gone"),
    ]
    simulated = MachineSnapshot(inventory=host(100))
    here = MachineSnapshot(inventory=host(100, 100), leases=(lease("old", 50),))
    running = [Running(id="old", run_dir="/jobs/old")]
    decision = schedule(jobs, running, {None: here, "1x100MiB": simulated}, {}, SETTINGS, 0.0)
    assert started(decision) == ["sim-1"]
    assert decision.why["sim-2"] == "machine gone cannot be read now"


def test_why_names_pid_user_and_since_when() -> None:
    now = time.mktime((2024, 3, 12, 14, 0, 0, 0, 0, -1))
    began = {4711: time.mktime((2024, 3, 12, 9, 12, 0, 0, 0, -1))}
    inventory = held_by_bob(host(16160, 16160), 1, 9318)
    mine = lease("snake-3", 14000, since=time.mktime((2024, 3, 10, 8, 30, 0, 0, 0, -1)), user="eve")
    rules = replace(SETTINGS, context_mib=450, headroom=200)
    snapshot: dict[str | None, MachineSnapshot] = {
        None: MachineSnapshot(inventory=inventory, leases=(mine,), began=began.get)
    }
    waiting = [job("snake-4", ask(actor=(10, 1133)))]
    decision = schedule(waiting, [], snapshot, {}, rules, now)
    assert decision.why["snake-4"] == (
        "needs 1583 MiB × 10 (actor); "
        "GPU 0 has 1837 of 15837 MiB free, 14000 MiB leased to eve/snake-3 since 10 Mar 08:30; "
        "GPU 1 has 6519 of 15837 MiB free, 9318 MiB held by pid 4711 of user bob since 09:12"
    )


def test_why_is_told_of_the_fullest_devices_and_the_rest_is_counted() -> None:
    leases = [lease(f"run-{i}", 10 + i, i) for i in range(8)]
    told = decide([job("run-9", whole(1))], host(*[100] * 8), leases).why["run-9"]
    assert told.startswith("needs 1 whole GPU; GPU 7 has 83 of 100 MiB free, 17 MiB leased to run-7; GPU 6")
    assert told.endswith("GPU 5 has 85 of 100 MiB free, 15 MiB leased to run-5; and 5 more")


needs = st.one_of(
    st.integers(0, 2).map(whole),
    st.integers(1, 90).map(memory),
    st.sampled_from([0.2, 0.4, 0.5, 1.0]).map(part),
    st.builds(lambda count, least: ask(actor=(count, least)), st.integers(1, 4), st.integers(1, 40)),
    st.builds(lambda count: ask(learner=(1, 30, 0.5), actor=(count, 20)), st.integers(1, 3)),
)


class World:
    """A host on a virtual clock. Jobs last as long as `lasts` says; bob's memory and jobs end when told to."""

    def __init__(self, totals: list[int], foreign: list[int], most_jobs: int = 64) -> None:
        self.totals = totals
        self.foreign = (foreign + [0] * len(totals))[: len(totals)]
        self.foreign = [min(mib, total) for mib, total in zip(self.foreign, totals, strict=True)]
        self.settings = replace(SETTINGS, most_jobs=most_jobs)
        self.now = 0.0
        self.waiting: list[Job] = []
        self.running: dict[str, tuple[float, float | None, tuple[Lease, ...]]] = {}
        self.began: dict[str, float] = {}

    @property
    def inventory(self) -> Inventory:
        return host(*self.totals, used=self.foreign)

    @property
    def leases(self) -> tuple[Lease, ...]:
        return tuple(one for _, _, mine in self.running.values() for one in mine)

    def decide(self) -> Decision:
        running = [Running(id=name, ends_at=by, run_dir=f"/jobs/{name}") for name, (_, by, _) in self.running.items()]
        snapshot: dict[str | None, MachineSnapshot] = {
            None: MachineSnapshot(inventory=self.inventory, leases=self.leases)
        }
        return schedule(self.waiting, running, snapshot, {}, self.settings, self.now)

    def step(self, lasts: dict[str, float]) -> Decision:
        """Start what is to start; check that nothing is over-committed."""
        decision = self.decide()
        again = self.decide()
        assert (decision.starts, decision.why, list(decision.never)) == (again.starts, again.why, list(again.never))
        held = list(leases_of(decision))
        for start in decision.starts:
            (mine,) = [one for one in self.waiting if one.id == start.id]
            limit = mine.submission.time_limit_s if mine.submission else None
            by = None if limit is None else self.now + limit
            ends = self.now + min(lasts[start.id], limit or lasts[start.id])
            self.running[start.id] = (ends, by, tuple(one for one in held if one.job == start.id))
            self.began[start.id] = self.now
        self.waiting = [one for one in self.waiting if one.id not in self.running]
        assert set(decision.why) == {one.id for one in self.waiting}
        assert len(self.running) <= self.settings.most_jobs
        for i, total in enumerate(self.totals):
            leased = sum(one.share_mib for one in self.leases if one.device_uuid == f"GPU-{i}")
            assert leased + self.foreign[i] <= total or not leased
        return decision

    def pass_time(self) -> bool:
        """Go on to the next end of a job; return whether there is one."""
        if not self.running:
            return False
        self.now = min(ends for ends, _, _ in self.running.values())
        self.running = {name: rest for name, rest in self.running.items() if rest[0] > self.now}
        return True


queues = st.lists(
    st.tuples(needs, st.integers(-1, 1), st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 9)),
    min_size=1,
    max_size=12,
)
Queue = list[tuple[CommandRequest | Request, int, int | None, int]]


def queued(queue: Queue) -> tuple[list[Job], dict[str, float]]:
    jobs = [
        job(f"j-{i}", need, created=i, priority=priority, time_limit_s=limit)
        for i, (need, priority, limit, _) in enumerate(queue)
    ]
    return jobs, {f"j-{i}": float(lasts) for i, (*_, lasts) in enumerate(queue)}


@settings(max_examples=150)
@given(queues, st.lists(st.integers(60, 120), min_size=1, max_size=3), st.lists(st.integers(0, 60)), st.integers(1, 6))
def test_every_job_that_fits_an_idle_host_starts_at_last_and_nothing_is_ever_overcommitted(
    queue: Queue, totals: list[int], foreign: list[int], most_jobs: int
) -> None:
    world = World(totals, foreign, most_jobs)
    world.waiting, lasts = queued(queue)
    never = set()
    for one in world.waiting:
        alone = World(totals, [])
        alone.waiting = [one]
        never |= set(alone.decide().never)
    while True:
        decision = world.step(lasts)
        if not world.pass_time():
            if not any(world.foreign):
                break
            world.foreign = [0] * len(totals)
    assert {one.id for one in world.waiting} == set(decision.never) == never


@settings(max_examples=300)
@given(queues, st.lists(st.integers(60, 120), min_size=1, max_size=3))
def test_a_head_starts_no_later_than_was_promised_when_others_passed_it(queue: Queue, totals: list[int]) -> None:
    world = World(totals, [])
    world.waiting, lasts = queued(queue)
    promised: dict[str, float] = {}
    while world.waiting:
        before = {one.id for one in world.waiting}
        decision = world.step(lasts)
        for name, by in promised.items():
            assert world.began.get(name, world.now) <= by
        head = next((one for one in _in_order(world.waiting) if one.id not in decision.never), None)
        if head is not None and before:
            by_now = _latest_start(world, head)
            if by_now is not None:
                promised[head.id] = min(by_now, promised.get(head.id, by_now))
        if not world.pass_time():
            break


def _in_order(waiting: list[Job]) -> list[Job]:
    return sorted(waiting, key=lambda one: (-(one.submission.priority if one.submission else 0), one.created))


def _latest_start(world: World, head: Job) -> float | None:
    """Return when `head` starts at the latest if every running job lasts as long as it may."""
    for moment in sorted({by for _, by, _ in world.running.values() if by is not None}):
        later = World(world.totals, world.foreign)
        later.running = {name: rest for name, rest in world.running.items() if rest[1] is None or rest[1] > moment}
        later.waiting = [head]
        if later.decide().starts:
            return moment
    return None


@pytest.mark.parametrize("number", [1, 40])
def test_equal_jobs_behind_a_head_are_all_told_why(number: int) -> None:
    jobs = [job("head", whole(1)), *(job(f"run-{i}", memory(5), created=1 + i) for i in range(number))]
    decision = decide(jobs, host(100), [lease("old", 50)])
    assert started(decision) == []
    assert set(decision.why) == {each.id for each in jobs}
    assert decision.why["run-0"] == (
        "needs 6 MiB of one GPU, 5 + 1 MiB of context; there is room for it, but head, which is before it, could then "
        "start later"
    )


def test_whom_a_time_limit_would_let_by_is_told_the_longest() -> None:
    running = [Running(id="old", run_dir="/jobs/old", ends_at=700.0)]
    slow_to_stop = Workload(name="test", roles=(Role(name="command", command=("true",)),), stop_grace_s=40.0)
    slow = job("slow", part(0.4), created=2, workload=slow_to_stop)
    decision = decide([job("head", whole(1)), slow], host(100), [lease("old", 50)], running)
    told = decision.why["slow"]
    assert told.startswith("needs 0.4 of one GPU, 40 of 100 MiB; there is room for it, but head")
    assert told.endswith("with a --time-limit of at most 11m00s it may pass")
    for limit, goes in ((660.0, ["slow"]), (661.0, [])):
        timed = job("slow", part(0.4), created=2, time_limit_s=limit, workload=slow_to_stop)
        assert started(decide([job("head", whole(1)), timed], host(100), [lease("old", 50)], running)) == goes


def test_what_only_the_driver_uses_of_a_device_is_nobodys() -> None:
    told = decide([job("run-2", whole(2))], host(10_000, 10_000, used=[0, 3]), [lease("run-1", 50)]).why["run-2"]
    assert told == "needs 2 whole GPUs; GPU 0 has 9950 of 10000 MiB free, 50 MiB leased to run-1"


def test_a_device_that_lets_one_process_in_is_told_as_such() -> None:
    inventory = host(100)
    alone = replace(inventory, devices=(replace(inventory.devices[0], compute_mode="exclusive_process"),))
    told = decide([job("run-2", part(0.2))], alone, [lease("run-1", 20)]).why["run-2"]
    assert told.endswith("GPU 0 lets one process in (EXCLUSIVE_PROCESS) and has one, 20 MiB leased to run-1")


def test_what_is_used_beyond_leases_is_told() -> None:
    inventory = host(100, used=[70])
    busy = replace(inventory.devices[0], processes=(DeviceProcess(pid=7, memory_mib=70),))
    told = decide([job("run-2", part(0.4))], replace(inventory, devices=(busy,)), [lease("run-1", 40, pid=7)])
    assert told.why["run-2"].endswith(
        "GPU 0 has 30 of 100 MiB free, 40 MiB leased to run-1, 30 MiB used by jobs beyond their leases"
    )


def test_a_device_out_of_order_is_told_to_who_waits_for_others() -> None:
    inventory = host(100, 100, 100)
    ill = replace(inventory.devices[2], health="error", problem="drained since 09:12: Xid 79")
    told = decide(
        [job("run-2", whole(2))], replace(inventory, devices=(*inventory.devices[:2], ill)), [lease("run-1", 50)]
    )
    assert told.why["run-2"].endswith("; GPU 2 takes no replica: it is drained since 09:12: Xid 79")


def test_a_part_of_unlike_devices_is_told_from_the_least_to_the_most() -> None:
    told = decide([job("run-2", part(0.5))], host(100, 60), [lease("a", 90), lease("b", 50, 1)]).why["run-2"]
    assert told.startswith("needs 0.5 of one GPU, 30 to 50 MiB; GPU 0 has 10 of 100 MiB free")
