"""`gpusched why`: when a waiting job starts, and what would let it start now, by playing the queue on."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.model.device import DeviceProcess, Inventory
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Request
from gpusched.model.status import JobState
from gpusched.scheduling.alternatives import alternatives
from gpusched.scheduling.decision import Running
from gpusched.scheduling.forecast import FUTURES, drawn_ends
from gpusched.scheduling.group_places import Limits
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.outlook import Outlook, QueueSnapshot
from gpusched.scheduling.run_times import RunTimes, left_after
from gpusched.scheduling.scheduler import schedule
from gpusched.storage.job import Job
from tests.planner.building import ask, host
from tests.scheduling.queueing import SETTINGS, job, lease, memory, part, whole

EXPECTING = replace(SETTINGS, strict=False)


class Known:
    """How long jobs run, by id; the same from 0 on for those that run."""

    def __init__(self, **run_times: RunTimes) -> None:
        self._run_times = run_times

    def expected(self, job: Job) -> RunTimes:
        return self._run_times[job.array or job.id]

    def running(self, job: Job, now: float) -> Running:
        left = left_after(self.expected(job), now - (job.started or 0.0))
        group, ends = job.submission.group if job.submission else None, drawn_ends(job.id, left, now)
        return Running(id=job.id, run_dir=job.run_dir, ends=ends, group=group, array=job.array)


def live(name: str) -> Job:
    return replace(job(name, whole(1)), state=JobState.RUNNING, started=0.0)


def outlook(
    waiting: Sequence[Job],
    inventory: Inventory,
    leases: Sequence[Lease],
    known: Known,
    *,
    blocked: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    at_most: Mapping[str, int] | None = None,
    more: Mapping[str, int] | None = None,
    running: Sequence[Job] = (),
    longest_s: float = 10.0,
) -> Outlook:
    """Find out all of the last of `waiting`. The jobs of `leases` without a user are ours, and run since 0."""
    names = {one.job for one in leases if one.user is None} - {one.id for one in running}
    ours = (*running, *(live(name) for name in sorted(names)))
    snapshot = MachineSnapshot(inventory=inventory, leases=tuple(leases))
    seen = QueueSnapshot(
        tuple(waiting), ours, {None: snapshot}, blocked or {}, 0.0, Limits(limits or {}, at_most or {}), more or {}
    )
    found = Outlook(waiting[-1], seen, known, EXPECTING, longest_s)
    while not found.step():
        pass
    return found


def test_it_starts_when_what_it_waits_for_has_ended_in_each_future() -> None:
    found = outlook([job("mine", whole(1))], host(100), [lease("old", 60)], Known(old=(50.0, 150.0), mine=(10.0,)))
    assert sorted(found.starts) == [50.0] * (FUTURES // 2) + [150.0] * (FUTURES // 2)
    assert (found.place, found.waiting, found.ahead) == (1, 1, ())


def test_those_before_it_run_first() -> None:
    waiting = [job("first", whole(1), created=1.0), job("mine", whole(1), created=2.0)]
    found = outlook(waiting, host(100), [lease("old", 60)], Known(old=(50.0,), first=(30.0,), mine=(10.0,)))
    assert found.starts == [80.0] * FUTURES
    assert (found.place, found.waiting, found.ahead) == (2, 2, ("first",))


def test_a_job_that_comes_later_changes_nothing() -> None:
    waiting = [job("later", whole(1), created=9.0), job("mine", whole(1), created=2.0)]
    found = outlook(waiting, host(100), [lease("old", 60)], Known(old=(50.0,), later=(30.0,), mine=(10.0,)))
    assert found.starts == [50.0] * FUTURES
    assert (found.place, found.waiting) == (1, 2)


def test_what_a_process_of_an_ended_job_used_is_free() -> None:
    inventory = host(100, used=[60])
    device = replace(inventory.devices[0], processes=(DeviceProcess(pid=7, memory_mib=60),))
    inventory = replace(inventory, devices=(device,))
    found = outlook([job("mine", whole(1))], inventory, [lease("old", 60, pid=7)], Known(old=(50.0,), mine=(10.0,)))
    assert found.starts == [50.0] * FUTURES


def test_what_is_no_job_of_ours_never_ends() -> None:
    strangers = lease("theirs", 60, user="alice")
    found = outlook([job("mine", whole(1))], host(100), [strangers], Known(mine=(10.0,)))
    assert found.starts == [math.inf] * FUTURES


def test_a_job_that_may_not_start_has_no_place_and_is_not_predicted() -> None:
    found = outlook([job("mine", part(0.1))], host(100), [], Known(mine=(10.0,)), blocked={"mine": "held"})
    assert (found.place, found.starts, found.ways) == (None, [], [])


def member(number: int) -> Job:
    return replace(job(f"array[{number}]", part(0.1), created=number / 100), array="array")


def test_the_members_of_an_array_before_it_run_no_more_at_a_time_than_may() -> None:
    waiting = [*(member(number) for number in range(4)), job("mine", whole(1), created=1.0)]
    known = Known(array=(100.0,), mine=(10.0,))
    assert outlook(waiting, host(100), [], known).starts == [100.0] * FUTURES
    found = outlook(waiting, host(100), [], known, at_most={"array": 2})
    assert (found.place, found.waiting, found.starts) == (5, 5, [200.0] * FUTURES)
    lives = replace(member(9), state=JobState.RUNNING, started=0.0)
    beside = outlook(waiting, host(100), [lease("array[9]", 10)], known, at_most={"array": 2}, running=[lives])
    assert beside.starts == [300.0] * FUTURES


def test_members_that_are_not_listed_count_and_of_many_the_start_is_not_predicted() -> None:
    waiting = [member(0), member(1), job("mine", whole(1), created=1.0)]
    known = Known(array=(100.0,), mine=(10.0,))
    found = outlook(waiting, host(100), [], known, more={"array": 500})
    assert (found.place, found.waiting, found.starts) == (503, 503, [])
    first = outlook([job("mine", whole(1), created=1.0), member(1)], host(100), [], known, more={"array": 500})
    assert (first.place, first.waiting) == (1, 502), "of its own array none is before it"


def in_sweep(name: str, created: float = 0.0) -> Job:
    return job(name, part(0.1), created=created, group="sweep")


def test_a_job_of_a_full_group_starts_when_another_one_of_it_has_ended_in_each_future() -> None:
    runs = replace(in_sweep("old"), state=JobState.RUNNING, started=0.0)
    known = Known(old=(50.0,), next=(10.0,), mine=(10.0,))
    waiting = [in_sweep("next", 1.0), in_sweep("mine", 2.0)]
    found = outlook(waiting, host(100), [], known, running=[runs], limits={"sweep": 1})
    assert (found.place, found.ahead, found.starts) == (2, ("next",), [60.0] * FUTURES)
    other = outlook([*waiting[:1], job("mine", part(0.1), created=2.0)], host(100), [], known, limits={"sweep": 1})
    assert other.starts == [0.0] * FUTURES


def test_with_very_many_before_it_its_place_is_known_and_its_start_is_not() -> None:
    names = [f"j{number}" for number in range(201)]
    waiting = [*(job(name, whole(1), created=1.0) for name in names), job("mine", whole(1), created=2.0)]
    run_times: dict[str, RunTimes] = dict.fromkeys(["old", "mine", *names], (10.0,))
    found = outlook(waiting, host(100), [lease("old", 60)], Known(**run_times))
    assert (found.place, found.starts) == (202, [])


def test_a_way_that_many_before_it_leave_open_is_none() -> None:
    names = [f"j{number}" for number in range(250)]
    waiting = [*(job(name, part(0.1), created=1.0) for name in names), job("mine", whole(1), created=2.0)]
    run_times: dict[str, RunTimes] = dict.fromkeys(["old", "mine", *names], (10.0,))
    found = outlook(waiting, host(*[100] * 21), [lease("old", 60)], Known(**run_times), longest_s=math.inf)
    # 200 of those before it fill 20 devices; the others take what is left of all, so that nothing is left for it.
    assert found.ways == []


BOTH = (lease("old", 600), lease("other", 600, 1))


@pytest.mark.parametrize(
    ("asked", "leases", "options"),
    [
        (whole(2), BOTH[:1], ["--num-gpus 1"]),
        (part(0.7), BOTH, ["--fraction 0.4"]),
        (memory(1000), BOTH, ["--memory 384MiB"]),
        (ask(learner=(1, 99), actor=(9, 99)), BOTH, ["--procs 7", "--actor-memory 64MiB"]),
        (ask(learner=(1, 99), actor=(2, 450)), BOTH, ["--actor-memory 256MiB"]),
    ],
)
def test_the_largest_smaller_need_that_has_a_place_is_an_option(
    asked: CommandRequest | Request, leases: Sequence[Lease], options: list[str]
) -> None:
    known = Known(old=(50.0,), other=(90.0,), mine=(10.0,))
    assert outlook([job("mine", asked)], host(1000, 1000), leases, known).ways == options


def test_another_device_is_an_option() -> None:
    mine = job("mine", whole(1), gpus="0", only=("GPU-0",))
    found = outlook([mine], host(100, 100), [lease("old", 60)], Known(old=(50.0,), mine=(10.0,)))
    assert found.ways == ["without --gpus 0"]


def test_a_time_limit_that_is_short_enough_to_pass_is_an_option() -> None:
    """`old` has 60 of 100 for 3 to 5 hours, the head waits for all of it, and mine may run for days."""
    waiting = [job("head", whole(1), created=1.0), job("mine", part(0.3), created=2.0)]
    known = Limited(old=(3 * 3600.0, 5 * 3600.0), head=(10.0,), mine=(2e5, 3e5))
    found = outlook(waiting, host(100), [lease("old", 60)], known)
    assert found.ways == ["--time-limit 5h"]  # over before the head starts in half of the cases


class Limited(Known):
    """A time limit bounds how long a job runs."""

    def expected(self, job: Job) -> RunTimes:
        limit = job.submission.time_limit_s if job.submission else None
        return tuple(min(each, limit or each) for each in super().expected(job))


needs = st.one_of(
    st.integers(1, 3).map(whole),
    st.integers(5, 100).map(lambda percent: part(percent / 100)),
    st.integers(1, 500).map(memory),
)


@settings(max_examples=60)
@given(needs, st.lists(st.integers(0, 900), min_size=3, max_size=3), st.booleans())
def test_each_option_would_let_it_start_now_and_none_is_named_for_nothing(
    asked: CommandRequest, held: list[int], has_head: bool
) -> None:
    leases = [lease(f"old{i}", share, i) for i, share in enumerate(held) if share]
    inventory = host(1000, 1000, 1000)
    mine = job("mine", asked, created=2.0, gpus="0", only=("GPU-0",))
    waiting = [job("head", whole(3), created=1.0), mine] if has_head else [mine]
    run_times: dict[str, RunTimes] = {one.job: (100.0, 7200.0) for one in leases}
    known = Limited(head=(10.0,), mine=(50.0, 90_000.0), **run_times)
    snapshot: dict[str | None, MachineSnapshot] = {None: MachineSnapshot(inventory=inventory, leases=tuple(leases))}
    questions: list[tuple[Submission, bool]] = []

    def starts(submission: Submission) -> bool:
        running = [known.running(live(one.job), 0.0) for one in leases]
        asking = [*waiting[:-1], replace(mine, submission=submission)]
        decision = schedule(asking, running, snapshot, {}, EXPECTING, 0.0, expected=known.expected)
        questions.append((submission, any(start.id == "mine" for start in decision.starts)))
        return questions[-1][1]

    assert mine.submission is not None
    named = [way for way in alternatives(mine.submission, starts) if way is not None]
    as_asked = starts(mine.submission)
    assert outlook(waiting, inventory, leases, known).ways == ([] if as_asked else named)
    assert bool(named) == any(answer for _, answer in questions)


def test_a_job_that_would_start_as_it_is_is_told_no_other_way() -> None:
    found = outlook([job("mine", whole(0))], host(100), [lease("old", 60)], Known(old=(50.0,), mine=(10.0,)))
    assert (found.ways, found.starts) == ([], [0.0] * FUTURES)
