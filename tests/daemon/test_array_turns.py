"""Members of arrays take their turn: of one that is extended again and again each has the age of its own coming."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.control.messages import Extend
from gpusched.daemon.admission import has_same_turn
from gpusched.daemon.arrays import at_most, extend, offered, with_later_members
from gpusched.model.array import Array
from gpusched.model.lease import Lease
from gpusched.model.status import JobState
from gpusched.scheduling.decision import Running
from gpusched.scheduling.outlook import QueueSnapshot
from gpusched.storage.array_table import ArrayProgress
from gpusched.storage.job import Job
from tests.planner.building import host
from tests.scheduling.queueing import SETTINGS, decide, job, leases_of, part, whole


class Jobs:
    """The one array of a daemon, as a table of jobs has it."""

    def __init__(self, array: Array, *, created: float = 1.0) -> None:
        waits = job("calls", part(0.3), created=created)
        assert waits.submission is not None
        self.live = {"calls": replace(waits, submission=replace(waits.submission, array=array))}
        self.arrays = {"calls": ArrayProgress(array, [])}

    def change(self, changed: Job) -> None:
        assert changed.submission is not None
        assert changed.submission.array is not None
        self.live["calls"], self.arrays["calls"].array = changed, changed.submission.array

    def begin(self, number: int) -> None:
        self.arrays["calls"].note(replace(job(f"calls[{number}]", part(0.3)), state=JobState.RUNNING))

    def end(self, number: int) -> None:
        self.arrays["calls"].note(replace(job(f"calls[{number}]", part(0.3)), state=JobState.SUCCEEDED))

    @property
    def state(self) -> Any:
        return SimpleNamespace(jobs=self, changed=lambda: None)

    def extend(self, count: int) -> None:
        extend(self.state, self.live["calls"], Extend(id="calls", count=count))

    def ages(self) -> list[float]:
        return [round(member.created) for member in offered(self.state, [self.live["calls"]], {}, 64)]


def test_calls_that_keep_coming_do_not_starve_a_job_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Executor sends a call every half minute, each for 100 s on a third of the device; the job wants all of it."""
    now, count, jobs = 2.0, 3, Jobs(Array(count=3, open=True))
    monkeypatch.setattr("time.time", lambda: now)
    head, live = job("head", whole(1), created=now), dict[str, tuple[float, list[Lease]]]()
    while "head" not in live:
        for name in [name for name, (end, _) in live.items() if end <= now]:
            jobs.end(int(name[6:-1]))
            del live[name]
        jobs.extend(count := count + 1)
        waiting = [*offered(jobs.state, jobs.live.values(), {}, 64), head]
        running = [Running(id=name, run_dir=f"/jobs/{name}", ends=(end,) * 24) for name, (end, _) in live.items()]
        held = [one for _, leases in live.values() for one in leases]
        rules = replace(SETTINGS, strict=False, most_delay_s=100.0)
        decision = decide(waiting, host(100), held, running, settings=rules, now=now, expected=lambda _: (100.0,))
        head = replace(head, promised=decision.promised.get("head", head.promised))
        for start in decision.starts:
            live[start.id] = now + 100.0, [one for one in leases_of(decision) if one.job == start.id]
            if start.id != "head":
                jobs.begin(int(start.id[6:-1]))
        now += 30.0
        assert now < 1000.0, "the calls that came before it, those of its first minute, and the bound"


def test_members_have_the_age_of_their_coming_and_those_of_a_minute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(Array(count=1, open=True))
    for now, count in ((30.0, 2), (100.0, 3), (130.0, 4), (200.0, 5)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        jobs.extend(count)
    assert jobs.ages() == [1, 1, 100, 100, 200]
    for number in range(3):
        jobs.begin(number)
    monkeypatch.setattr("time.time", lambda: 300.0)
    jobs.extend(6)
    assert jobs.ages() == [100, 200, 300]
    assert len(jobs.live["calls"].extended) == 3, "what has begun needs no age"


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_members_never_seem_older_than_they_are_by_over_a_minute_and_keep_their_order(
    turns: list[tuple[int, int, int]],
) -> None:
    now, came, jobs = 1000.0, [1000.0], Jobs(Array(count=1, open=True), created=1000.0)
    with pytest.MonkeyPatch.context() as patch:
        for later, more, begin in turns:
            now += later
            patch.setattr("time.time", lambda now=now: now)
            jobs.extend(len(came) + more)
            came += [now] * more
            for number in jobs.arrays["calls"].startable(begin):
                jobs.begin(number)
    members = list(offered(jobs.state, [jobs.live["calls"]], {}, 1000))
    ages = [member.created for member in members]
    numbers = [int(member.id[6:-1]) for member in members]
    assert numbers == [n for n in range(len(came)) if n not in jobs.arrays["calls"].begun]
    assert ages == sorted(ages)
    for number, age in zip(numbers, ages, strict=True):
        assert came[number] - 60.0 <= age <= came[number] + 0.01


def test_what_was_promised_to_an_array_was_so_to_its_next_member_alone() -> None:
    jobs = Jobs(Array(count=3))
    jobs.live["calls"] = replace(jobs.live["calls"], promised=50.0)
    assert [one.promised for one in offered(jobs.state, jobs.live.values(), {}, 64)] == [50.0, None, None]


def test_who_asks_sees_the_members_that_are_not_offered_yet() -> None:
    jobs = Jobs(Array(count=500, at_most=3))
    jobs.begin(0)
    seen = QueueSnapshot(tuple(offered(jobs.state, jobs.live.values(), {}, 64)), (), {}, {}, 2.0)
    assert [one.id for one in seen.waiting] == ["calls[1]", "calls[2]", "calls[3]"], "two may start, and one is next"
    assert at_most(jobs.state) == {"calls": 3}
    wider = with_later_members(jobs.state, seen, 200)
    assert [one.id for one in wider.waiting] == [f"calls[{number}]" for number in range(1, 201)]
    assert wider.more == {"calls": 299}
    jobs.begin(1)  # since then
    assert with_later_members(jobs.state, seen, 200).more == {"calls": 299}


def test_who_asks_sees_a_bounded_number_of_members_of_all_arrays_those_first_that_come_first() -> None:
    jobs = Jobs(Array(count=150))
    older = replace(jobs.live["calls"], id="older", run_dir="/jobs/older", created=0.5)
    jobs.live["older"], jobs.arrays["older"] = older, ArrayProgress(Array(count=150), [])
    seen = QueueSnapshot(tuple(offered(jobs.state, jobs.live.values(), {}, 4)), (), {}, {}, 2.0)
    assert [one.id for one in seen.waiting] == ["calls[0]", "calls[1]", "older[0]", "older[1]"]
    wider = with_later_members(jobs.state, seen, 200)
    assert len(wider.waiting) == len({one.id for one in wider.waiting}) == 200
    assert wider.more == {"older": 0, "calls": 100}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"name": "x"}, True),
        ({"time_limit_s": 60.0}, True),
        ({"priority": 5}, False),
        ({"group": "sweep"}, False),
        ({"at": 1.0}, False),
        ({"after": ("run-1",)}, False),
        ({"command": part(0.5)}, False),
        ({"gpus": ("1",)}, False),
    ],
)
def test_a_change_of_no_weight_leaves_a_job_what_it_was_promised(change: dict[str, object], *, same: bool) -> None:
    before = job("run-1", whole(1)).submission
    assert before is not None
    assert has_same_turn(before, replace(before, **change)) is same
