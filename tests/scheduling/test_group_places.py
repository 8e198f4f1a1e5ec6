"""A group has no more jobs at a time than may run, exactly, and costs no job of another group its turn."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.leases.directory import leases_of_plan
from gpusched.model.job import CommandRequest
from gpusched.model.lease import Lease
from gpusched.scheduling.decision import Decision, Running
from gpusched.scheduling.forecast import drawn_ends
from gpusched.scheduling.group_places import Limits
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.run_times import PRIOR
from gpusched.scheduling.scheduler import schedule
from gpusched.storage.job import Job
from tests.planner.building import host
from tests.scheduling.queueing import SETTINGS, decide, job, lease, memory, part, started, whole

EXPECTING = replace(SETTINGS, strict=False)
FULL = "group sweep: {} and at most {} may; change it with: gpusched group sweep --at-most N"


def in_sweep(name: str, need: CommandRequest, created: float = 0.0, **fields: object) -> Job:
    return job(name, need, created=created, group="sweep", **fields)


def runs(name: str, group: str | None = "sweep", ends_at: float | None = None) -> Running:
    return Running(id=name, run_dir=f"/jobs/{name}", group=group, ends_at=ends_at, ends=drawn_ends(name, PRIOR, 0.0))


def test_one_pass_starts_as_many_as_the_group_has_places_in_the_order_of_the_queue() -> None:
    jobs = [in_sweep(f"s{i}", part(0.1), i, priority=i % 2) for i in range(5)]
    decision = decide(
        [*jobs, job("other", part(0.1), created=9)], host(100), running=[runs("old")], limits={"sweep": 3}
    )
    assert started(decision) == ["s1", "s3", "other"]
    assert set(decision.why) == {"s0", "s2", "s4"}
    assert decision.why["s0"] == FULL.format("3 jobs run", 3)


def test_a_lower_limit_than_the_number_that_runs_lets_none_start() -> None:
    decision = decide([in_sweep("s", whole(0))], host(100), running=[runs("a"), runs("b")], limits={"sweep": 1})
    assert (started(decision), decision.why["s"]) == ([], FULL.format("2 jobs run", 1))


def test_of_an_array_no_more_members_start_than_may_and_the_others_are_no_head() -> None:
    members = [replace(job(f"run-1[{i}]", part(0.1), created=i), array="run-1") for i in range(3)]
    lives = Running(id="run-1[9]", run_dir="/jobs/run-1[9]", array="run-1")
    other = job("other", part(0.1), created=9)
    decision = decide([*members, other], host(100), running=[lives], at_most={"run-1": 2}, limits={"sweep": 0})
    assert started(decision) == ["run-1[0]", "other"]
    assert decision.why["run-1[1]"] == "2 of at most 2 members of run-1 run"


def test_the_last_place_of_an_array_is_kept_for_its_member_that_waits_for_devices() -> None:
    members = [replace(job(f"a[{i}]", need, created=i), array="a") for i, need in enumerate((whole(1), whole(0)))]
    decision = decide(members, host(100), [lease("old", 50)], at_most={"a": 1}, settings=EXPECTING)
    assert started(decision) == []
    assert decision.why["a[1]"].startswith("the last of the 1 places of a's members is kept for a[0]")


def test_a_head_is_promised_nothing_while_jobs_before_it_wait_for_their_group_alone() -> None:
    jobs = [in_sweep("a", part(0.3), 1), in_sweep("b", part(0.3), 2), job("head", whole(1), created=3)]
    alive, held = runs("old"), [lease("old", 30)]
    behind = decide(jobs, host(100), held, [alive], limits={"sweep": 1}, settings=EXPECTING)
    assert behind.promised == {}
    assert "expected" not in behind.why["head"]
    alone = decide(jobs[2:], host(100), held, [alive], limits={"sweep": 1}, settings=EXPECTING)
    assert list(alone.promised) == ["head"]
    assert "expected" in alone.why["head"]
    later = [jobs[2], in_sweep("a", part(0.3), 4)]
    assert list(decide(later, host(100), held, [alive], limits={"sweep": 1}, settings=EXPECTING).promised) == ["head"]


def test_jobs_without_a_device_and_on_other_machines_count_in_the_same_group() -> None:
    jobs = [in_sweep("a", whole(0), 1), in_sweep("b", part(0.1), 2, machine="other"), in_sweep("c", part(0.1), 3)]
    snapshots: dict[str | None, MachineSnapshot] = {
        name: MachineSnapshot(inventory=host(100)) for name in (None, "other")
    }
    decision = schedule(jobs, [], snapshots, {}, SETTINGS, 0.0, limits=Limits({"sweep": 2}))
    assert started(decision) == ["a", "b"]


def test_a_job_of_a_full_group_is_no_head_for_which_others_wait() -> None:
    old = [lease("old", 50)]
    jobs = [in_sweep("s", whole(1), 1), job("other", memory(20), created=2)]
    assert started(decide(jobs, host(100), old, limits={"sweep": 2})) == []
    full = decide(jobs, host(100), old, [runs("old")], limits={"sweep": 1})
    assert (started(full), full.why["s"]) == (["other"], FULL.format("1 job runs", 1))


def test_of_several_that_pass_a_head_in_one_pass_no_more_start_than_the_group_has_places() -> None:
    head = job("head", whole(1), created=1.0)
    short = [in_sweep(f"s{i}", memory(5), 2.0 + i, time_limit_s=50.0) for i in range(3)]
    rules = replace(SETTINGS, strict=False)
    old, running = [lease("old", 50)], [runs("old", group=None, ends_at=100.0)]
    decision = decide([head, *short], host(100), old, running, settings=rules, limits={"sweep": 2})
    assert started(decision) == ["s0", "s1"]
    assert decision.why["s2"] == FULL.format("2 jobs run", 2)


def behind_a_head(mine: Job, ends_at: float | None = None) -> Decision:
    """Decide on a job behind a head of its group, of which one of two runs; the head waits for the first device."""
    head = in_sweep("head", whole(1), 1.0, only=("GPU-0",))
    return decide([head, mine], host(100, 100), [lease("old", 60)], [runs("old", ends_at=ends_at)], limits={"sweep": 2})


def test_a_place_in_the_group_is_kept_for_its_head() -> None:
    elsewhere = {"only": ("GPU-1",)}
    assert started(behind_a_head(job("mine", whole(1), created=2.0, **elsewhere))) == ["mine"]
    kept = behind_a_head(in_sweep("mine", whole(1), 2.0, **elsewhere))
    assert (started(kept), "head, which is before it, could then start later" in kept.why["mine"]) == ([], True)
    assert behind_a_head(in_sweep("mine", whole(0), 2.0)).why["mine"] == (
        "group sweep: the last of its 2 places is kept for head, which is before it"
    )


def test_one_that_is_over_before_the_head_of_its_group_starts_may_have_its_place() -> None:
    short = in_sweep("mine", whole(1), 2.0, only=("GPU-1",), time_limit_s=50.0)
    assert started(behind_a_head(short, ends_at=100.0)) == ["mine"]
    assert started(behind_a_head(short, ends_at=40.0)) == []


def test_the_last_place_of_a_group_is_kept_for_one_head_and_there_is_no_second_one() -> None:
    jobs = [
        in_sweep("head", whole(1), 1.0),
        in_sweep("there", whole(1), 2.0, machine="other"),
        job("small", memory(20), created=3.0, machine="other"),
    ]
    snapshots: dict[str | None, MachineSnapshot] = {
        name: MachineSnapshot(inventory=host(100), leases=(lease("old", 50, user="bob"),)) for name in (None, "other")
    }
    decision = schedule(jobs, [], snapshots, {}, SETTINGS, 0.0, limits=Limits({"sweep": 1}))
    assert started(decision) == ["small"], "it waits for no head on its machine"
    assert decision.why["there"].endswith("is kept for head, which is before it")


class Submitted(NamedTuple):
    need: CommandRequest
    group: str | None
    machine: str | None
    priority: int
    time_limit_s: float | None


class Limited(NamedTuple):
    group: str
    at_most: int | None


Event = Submitted | Limited | int
"""A job comes, a limit is set or taken away, or the running job of that number (modulo all) ends."""

groups = st.sampled_from(["a", "b"])
events = st.one_of(
    st.builds(
        Submitted,
        st.one_of(st.integers(0, 2).map(whole), st.integers(1, 90).map(memory), st.sampled_from([0.2, 0.5]).map(part)),
        st.none() | groups,
        st.none() | st.just("other"),
        st.integers(-1, 1),
        st.none() | st.sampled_from([5.0, 500.0]),
    ),
    st.builds(Limited, groups, st.none() | st.integers(1, 3)),
    st.integers(0, 9),
)


class World:
    """Two machines and a queue on a virtual clock, one second for each event."""

    def __init__(self, *, strict: bool) -> None:
        self.settings = replace(SETTINGS, strict=strict)
        self.now = 0.0
        self.limits: dict[str, int] = {}
        self.waiting: list[Job] = []
        self.running: dict[str, tuple[Job, float, tuple[Lease, ...]]] = {}

    def apply(self, event: Event) -> None:
        self.now += 1
        if isinstance(event, Submitted):
            fields = event._asdict() | {"created": self.now}
            self.waiting.append(job(f"j{self.now:g}", fields.pop("need"), **fields))
        elif isinstance(event, Limited):
            self.limits.pop(event.group, None)
            if event.at_most is not None:
                self.limits[event.group] = event.at_most
        elif self.running:
            del self.running[sorted(self.running)[event % len(self.running)]]

    def decide(self, waiting: Sequence[Job], limits: Mapping[str, int]) -> Decision:
        snapshots: dict[str | None, MachineSnapshot] = {}
        for machine in (None, "other"):
            held = (one for mine, _, leases in self.running.values() for one in leases if on(mine) == machine)
            snapshots[machine] = MachineSnapshot(inventory=host(100, 100), leases=tuple(held))
        live = [
            Running(id=name, run_dir=mine.run_dir, group=group_of(mine), ends_at=began + limit if limit else None)
            for name, (mine, began, _) in self.running.items()
            for limit in [mine.submission.time_limit_s if mine.submission else None]
        ]
        return schedule(
            waiting, live, snapshots, {}, self.settings, self.now, expected=lambda _: PRIOR, limits=Limits(limits)
        )

    def number_of(self, group: str | None) -> int:
        return sum(group_of(mine) == group for mine, _, _ in self.running.values())


def on(mine: Job) -> str | None:
    return mine.submission.machine if mine.submission else None


def group_of(mine: Job) -> str | None:
    return mine.submission.group if mine.submission else None


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(events, min_size=1, max_size=8), max_size=8), st.booleans())
def test_no_group_has_more_than_its_limit_when_one_of_it_starts_and_no_other_job_waits_for_that(
    passes: list[list[Event]], strict: bool
) -> None:
    world = World(strict=strict)
    for happened in passes:
        for event in happened:
            world.apply(event)
        decision = world.decide(world.waiting, world.limits)
        by_group = {name for name, why in decision.why.items() if why.startswith("group ")}
        assert all(group_of(mine) in world.limits for mine in world.waiting if mine.id in by_group)
        without = world.decide([mine for mine in world.waiting if mine.id not in by_group], world.limits)
        assert without.starts == decision.starts, "those that wait for their group change nothing for the others"
        others = {name: why for name, why in decision.why.items() if name not in by_group}
        assert _but_for_when(without.why) == _but_for_when(others)
        for start in decision.starts:
            (mine,) = [one for one in world.waiting if one.id == start.id]
            held = tuple(replace(one, run_dir=mine.run_dir) for one in leases_of_plan(start.plan, mine.id))
            world.running[mine.id] = (mine, world.now, held)
            group = group_of(mine)
            assert group not in world.limits or world.number_of(group) <= world.limits[group]
        world.waiting = [mine for mine in world.waiting if mine.id not in world.running]


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=30))
def test_limits_that_are_never_reached_change_nothing(happened: list[Event]) -> None:
    world = World(strict=False)
    for event in happened:
        world.apply(event)
    assert world.decide(world.waiting, {"a": 100, "b": 100}) == world.decide(world.waiting, {})


def _but_for_when(why: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons without when a head is expected: that is not known while others have their turn first."""
    return {name: text.partition("; expected to start")[0] for name, text in why.items()}
