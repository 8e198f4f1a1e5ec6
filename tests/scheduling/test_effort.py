"""How much is worked out in one pass over the queue, in calls: nothing twice, and nothing again for each job."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpusched.execution import plans
from gpusched.scheduling import machine
from gpusched.scheduling.backfill import HeadReservation
from gpusched.scheduling.decision import Running
from gpusched.scheduling.forecast import drawn_ends
from tests.planner.building import ask, host
from tests.scheduling.queueing import SETTINGS, decide, job, lease, memory, part, started, whole

EXPECTING = replace(SETTINGS, strict=False, most_jobs=100)


def counted(monkeypatch: pytest.MonkeyPatch, name: str, *places: object) -> list[int]:
    """Count the calls of a function, which these modules have under one name, or of a method."""
    calls = [0]
    was: Callable[..., object] = getattr(places[0], name)

    def count(*arguments: object, **named: object) -> object:
        calls[0] += 1
        return was(*arguments, **named)

    for place in places:
        monkeypatch.setattr(place, name, count)
    return calls


def test_a_job_with_roles_that_passes_the_head_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, "plan_for", plans, machine)
    old = Running(id="old", run_dir="/jobs/old", ends=drawn_ends("old", (100.0, 200.0), 0.0))
    jobs = [
        job("head", whole(1), created=1.0),
        *(job(f"j{i}", ask(actor=(2, 10)), created=2.0 + i, grow=False) for i in range(3)),
    ]
    decision = decide(jobs, host(1000), [lease("old", 600)], [old], settings=EXPECTING, expected=lambda _: (50.0,))
    assert started(decision) == ["j0", "j1", "j2"]
    assert calls == [3]


def test_whether_a_head_waits_for_others_only_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, "_fits_after", HeadReservation)
    jobs = [job("head", whole(1), created=1.0), *(job(f"j{i}", part(0.1), created=2.0 + i) for i in range(100))]
    theirs = [lease("theirs", 60, user="bob")]
    one = [Running(id="cpu", run_dir="/jobs/cpu")]
    found = []
    for waiting in (jobs[:3], jobs):
        calls[0] = 0
        decide(waiting, host(100), theirs, one, settings=replace(EXPECTING, most_jobs=2))
        found.append(calls[0])
    assert found[0] == found[1] > 0


def test_jobs_that_need_the_same_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, "is_feasible", machine)
    jobs = [job("head", whole(2), created=1.0), *(job(f"j{i}", memory(90), created=2.0 + i) for i in range(500))]
    decide(jobs, host(100, 100), [lease("a", 60), lease("b", 60, device=1)], settings=EXPECTING)
    assert calls[0] < 50
