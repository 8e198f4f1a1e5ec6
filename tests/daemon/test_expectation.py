"""Backfill by expectation: who probably keeps the head waiting no longer passes it, and nobody can starve it."""

import heapq
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.daemon.forecast import drawn_ends
from gpusched.daemon.job import Job, Passed
from gpusched.daemon.run_times import RunTimes, left_after
from gpusched.daemon.scheduler import Decision, Running
from gpusched.leases.directory import leases_of_plan
from gpusched.model.lease import Lease
from tests.daemon.queueing import SETTINGS, decide, job, lease, part, started, whole
from tests.planner.building import host

EXPECTING = replace(SETTINGS, strict=False)
OLD = lease("old", 60)


def running(name: str, run_times: RunTimes, *, passed: Passed | None = None, now: float = 0.0) -> Running:
    return Running(id=name, run_dir=f"/jobs/{name}", ends=drawn_ends(name, run_times, now), passed=passed)


def behind(run_times: RunTimes, *others: Running, overruns: int = 0, strict: bool = False) -> Decision:
    """One device of which `old` has 60 for 100 to 200 s; a head wants all of it, and a job of 0.3 stands behind it."""
    head = replace(job("head", whole(1), created=1.0), overruns=overruns)
    rules = replace(EXPECTING, strict=strict)
    old = running("old", (100.0, 200.0))
    candidate = job("behind", part(0.3), created=2.0)
    return decide([head, candidate], host(100), [OLD], [old, *others], settings=rules, expected=lambda _: run_times)


def test_a_job_that_probably_ends_before_the_head_starts_passes_and_notes_by_when() -> None:
    decision = behind((10.0, 20.0))
    assert started(decision) == ["behind"]
    assert decision.starts[0].passed == Passed(head="head", by=150.0)


def test_a_job_that_may_well_outlast_it_waits() -> None:
    assert started(behind((10.0, 150.0))) == []
    assert started(behind((5000.0,))) == []


def test_nine_in_ten_are_enough() -> None:
    assert started(behind((*[10.0] * 19, 5000.0))) == ["behind"]
    assert started(behind((*[10.0] * 7, 5000.0))) == []


def test_strict_wants_a_proof() -> None:
    assert started(behind((10.0,), strict=True)) == []


def test_the_head_says_when_it_is_expected() -> None:
    assert behind((5000.0,)).why["head"].endswith("expected to start in 3m20s, between 1m40s and 3m20s")


def test_after_five_that_ran_longer_than_expected_nobody_passes_without_a_proof() -> None:
    late = [running(f"late-{i}", (10.0,), passed=Passed(head="head", by=-1.0)) for i in range(5)]
    assert started(behind((10.0,), *late[:4])) == ["behind"]
    assert started(behind((10.0,), *late)) == []
    assert started(behind((10.0,), overruns=5)) == []
    assert started(behind((10.0,), *late[:2], overruns=3)) == []
    assert started(behind((10.0,), *late[:1], overruns=3)) == ["behind"]


def test_those_that_passed_another_head_or_are_still_in_time_do_not_count() -> None:
    others = [running(f"o-{i}", (10.0,), passed=Passed(head="another", by=-1.0)) for i in range(9)]
    in_time = [running(f"t-{i}", (10.0,), passed=Passed(head="head", by=1.0)) for i in range(9)]
    assert started(behind((10.0,), *others, *in_time)) == ["behind"]


def test_of_those_behind_the_head_the_shortest_comes_first_within_a_priority() -> None:
    expected = {"long": (90.0,), "short": (10.0,), "urgent": (50.0,)}
    jobs = [job("head", whole(1), created=1.0, priority=9)]
    jobs += [job(name, part(0.3), created=2.0 + i, priority=5 * (name == "urgent")) for i, name in enumerate(expected)]
    old = running("old", (100.0,))
    found = decide(jobs, host(100), [OLD], [old], settings=EXPECTING, expected=lambda one: expected.get(one.id, (1.0,)))
    assert started(found) == ["urgent"]
    without = [one for one in jobs if one.id != "urgent"]
    found = decide(
        without, host(100), [OLD], [old], settings=EXPECTING, expected=lambda one: expected.get(one.id, (1.0,))
    )
    assert started(found) == ["short"]


def test_a_head_that_waits_for_what_cannot_be_predicted_is_passed_with_a_proof_only() -> None:
    head, candidate = job("head", whole(1), created=1.0), job("behind", part(0.3), created=2.0)
    unknown = [Running(id="old", run_dir="/jobs/old")]
    assert started(decide([head, candidate], host(100), [OLD], unknown, settings=EXPECTING)) == []


class Adversary:
    """Small jobs that always ran for `claimed` seconds before, and now run for `real`, come without end."""

    def __init__(self, devices: int, claimed: float, real: Callable[[int], float], every: float, most: int) -> None:
        self.claimed, self.real, self.every = claimed, real, every
        self.host = host(*[100] * devices)
        self.rules = replace(EXPECTING, most_overruns=most)
        self.waiting: dict[str, Job] = {}
        self.live: dict[str, tuple[float, float, Passed | None, tuple[Lease, ...]]] = {}
        self.ends: list[tuple[float, str]] = []

    def run_until_the_head_starts(self, until: float) -> tuple[float, int]:
        """Return when the head starts, and how many that passed it were still running when it was first expected."""
        now, number, passed = 0.0, 0, dict[str, Passed]()
        while now < until:
            while self.ends and self.ends[0][0] <= now:
                self._end(heapq.heappop(self.ends)[1], now)
            self.waiting[f"small-{number}"] = job(f"small-{number}", part(0.3), created=now)
            number += 1
            if number == 4:
                self.waiting["head"] = job("head", whole(len(self.host.devices)), created=now)
            for start in self._decide(now):
                if start == "head":
                    return now, sum(one.by < now for one in passed.values())
                if (mine := self.live[start][2]) is not None:
                    passed[start] = mine
            now += self.every
        return now, len(passed)

    def _decide(self, now: float) -> Sequence[str]:
        leases = [one for *_, mine in self.live.values() for one in mine]
        live = [
            Running(
                id=name,
                run_dir=f"/jobs/{name}",
                ends=drawn_ends(name, left_after((self.claimed,), now - began), now),
                passed=passed,
            )
            for name, (began, _, passed, _) in self.live.items()
        ]
        found = decide(
            list(self.waiting.values()),
            self.host,
            leases,
            live,
            settings=self.rules,
            now=now,
            expected=lambda _: (self.claimed,),
        )
        for start in found.starts:
            del self.waiting[start.id]
            mine = tuple(replace(one, run_dir=f"/jobs/{start.id}") for one in leases_of_plan(start.plan, start.id))
            end = now + self.real(int(start.id.rpartition("-")[2] or 0)) if start.id != "head" else now
            self.live[start.id] = now, end, start.passed, mine
            heapq.heappush(self.ends, (end, start.id))
        return started(found)

    def _end(self, name: str, now: float) -> None:
        _, _, passed, _ = self.live.pop(name)
        head = self.waiting.get("head")
        if head is not None and passed is not None and passed.by < now:
            self.waiting["head"] = replace(head, overruns=head.overruns + 1)


@pytest.mark.parametrize("most", [0, 1, 5])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_stream_that_always_runs_longer_than_expected_cannot_starve_the_head(devices: int, most: int) -> None:
    adversary = Adversary(devices, claimed=10.0, real=lambda _: 300.0, every=5.0, most=most)
    began, _ = adversary.run_until_the_head_starts(until=20_000.0)
    places = 3 * devices
    assert began <= 300.0 * (2 + places + most)


@settings(max_examples=25)
@given(st.integers(1, 2), st.floats(5, 100), st.floats(100, 2000), st.integers(0, 6), st.integers(0, 9))
def test_whatever_an_adversary_claims_the_head_starts_within_the_bound(
    devices: int, claimed: float, real: float, most: int, seed: int
) -> None:
    spread = [real * (1 + (seed * 7 + i * 5) % 10) / 10 for i in range(10)]
    adversary = Adversary(devices, claimed, lambda number: spread[number % 10], every=max(5.0, claimed / 2), most=most)
    bound = real * (2 + 3 * devices + most)
    began, _ = adversary.run_until_the_head_starts(until=bound + 10_000)
    assert began <= bound + 1000
