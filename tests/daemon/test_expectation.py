"""Backfill by expectation: who probably keeps the head waiting no longer passes it, and nobody can starve it."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.control.messages import Hold, Shutdown, Stop
from gpusched.leases.directory import leases_of_plan
from gpusched.model.array import Array
from gpusched.model.device import DeviceProcess
from gpusched.model.job import CommandRequest
from gpusched.model.lease import Lease
from gpusched.model.plan import Request
from gpusched.model.status import JobState
from gpusched.model.workload import Role, Workload
from gpusched.scheduling import expectations
from gpusched.scheduling.decision import Decision, Running
from gpusched.scheduling.expectations import Expectations
from gpusched.scheduling.forecast import drawn_ends
from gpusched.scheduling.run_times import PRIOR, RunTimes, left_after
from gpusched.storage.job import Job
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store
from tests.daemon.daemons import Daemon
from tests.patience import PATIENCE_S, until
from tests.planner.building import ask, host
from tests.scheduling.queueing import SETTINGS, decide, job, lease, part, started, whole

EXPECTING = replace(SETTINGS, strict=False)
OLD = lease("old", 60)


DAY_S = 86_400.0


def expected_of(times: Mapping[str, RunTimes]) -> Callable[[Job], RunTimes]:
    return lambda job: times[job.id]


def running(name: str, run_times: RunTimes, now: float = 0.0) -> Running:
    return Running(id=name, run_dir=f"/jobs/{name}", ends=drawn_ends(name, run_times, now))


def behind(run_times: RunTimes, *, promised: float | None = None, strict: bool = False) -> Decision:
    """One device of which `old` has 60 for 100 to 200 s; a head wants all of it, and a job of 0.3 stands behind it."""
    head = replace(job("head", whole(1), created=1.0), promised=promised)
    rules = replace(EXPECTING, strict=strict)
    old = running("old", (100.0, 200.0))
    candidate = job("behind", part(0.3), created=2.0)
    return decide([head, candidate], host(100), [OLD], [old], settings=rules, expected=lambda _: run_times)


def test_a_job_that_probably_ends_before_the_head_starts_passes() -> None:
    assert started(behind((10.0, 20.0))) == ["behind"]
    assert started(behind((*[10.0] * 19, 5000.0))) == ["behind"]


def test_a_job_that_probably_runs_when_the_head_could_start_waits() -> None:
    assert started(behind((5000.0,))) == []
    assert started(behind((150.0, 5000.0))) == []  # over before the head's start in a quarter of the cases


def test_the_later_the_head_is_the_surer_it_has_to_be_that_a_job_is_over_before_it() -> None:
    late = EXPECTING.most_delay_s / 5  # by then 0.6 is asked for instead of 0.5, which rises to 1
    in_time = (50.0, 150.0, 150.0, 150.0, 150.0)  # with a probability of 0.6
    assert started(behind((150.0,))) == ["behind"]  # of 0.5
    assert started(behind(in_time, promised=-late + 1)) == ["behind"]
    assert started(behind(in_time, promised=-late - 1)) == []
    assert started(behind((50.0,), promised=-late - 1)) == ["behind"]


def little_late(behind_s: float, head_s: float, promised: float | None = None) -> list[str]:
    """The head is expected in 100 s, and in `behind_s` beside the job behind it; it will itself run for `head_s`."""
    head, candidate = job("head", whole(1), created=1.0), job("behind", part(0.3), created=2.0)
    expected = {"head": (head_s,), "behind": (behind_s,)}
    jobs = [replace(head, promised=promised), candidate]
    old = running("old", (100.0,))
    return started(decide(jobs, host(100), [OLD], [old], settings=EXPECTING, expected=expected_of(expected)))


def test_a_job_may_delay_the_head_by_a_tenth_of_what_that_is_expected_to_run() -> None:
    assert little_late(149.0, head_s=500.0) == ["behind"]
    assert little_late(151.0, head_s=500.0) == []


def test_little_delays_add_up_from_the_earliest_moment_for_which_the_head_was_expected() -> None:
    assert little_late(149.0, head_s=500.0, promised=100.0) == ["behind"]
    assert little_late(149.0, head_s=500.0, promised=98.0) == []


def test_however_long_the_head_will_run_a_job_delays_it_by_two_days_at_most() -> None:
    assert little_late(100.0 + 2 * DAY_S, head_s=1e7) == ["behind"]
    assert little_late(101.0 + 2 * DAY_S, head_s=1e7) == []


def test_a_new_head_is_noted_with_when_it_is_expected() -> None:
    assert behind((10.0,)).promised == {"head": 150.0}
    assert behind((10.0,), promised=120.0).promised == {}
    assert behind((10.0,), promised=209.0).promised == {}
    assert behind((10.0,), promised=5000.0).promised == {"head": 150.0}  # the bound counts from the earliest
    assert behind((10.0,), strict=True).promised == {}


def test_strict_goes_by_no_expectation() -> None:
    assert started(behind((10.0,), strict=True)) == []


def test_the_head_says_when_it_is_expected() -> None:
    assert behind((5000.0,)).why["head"].endswith("expected to start in 3m20s, between 1m40s and 3m20s")


def test_two_days_after_it_was_first_expected_no_expectation_lets_a_job_pass() -> None:
    assert started(behind((10.0,), promised=-2 * DAY_S)) == ["behind"]
    assert started(behind((10.0,), promised=-2 * DAY_S - 1)) == []


def test_a_limit_that_is_over_when_the_head_starts_by_limits_lets_a_job_pass_however_late_that_is() -> None:
    head, old = job("head", whole(1), created=1.0), replace(running("old", (10.0,)), ends_at=9 * DAY_S)
    expected = {"head": (1.0,), "behind": (7 * DAY_S,)}
    for late_s in (0.0, 2 * DAY_S + 1):
        for limit_s, goes in ((9 * DAY_S, True), (9 * DAY_S + 1, False)):
            limited = job("behind", part(0.3), created=2.0, time_limit_s=limit_s)
            jobs = [replace(head, promised=-late_s), limited]
            found = decide(jobs, host(100), [OLD], [old], settings=EXPECTING, expected=expected_of(expected))
            assert (started(found) == ["behind"]) is goes, (late_s, limit_s)


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


def test_a_head_that_waits_for_what_cannot_be_predicted_is_passed_by_no_expectation() -> None:
    head, candidate = job("head", whole(1), created=1.0), job("behind", part(0.3), created=2.0)
    unknown = [Running(id="old", run_dir="/jobs/old")]
    assert started(decide([head, candidate], host(100), [OLD], unknown, settings=EXPECTING)) == []


@pytest.mark.parametrize("need", [ask(actor=(2, 90)), ask(learner=(1, 90), actor=(1, 80))])
def test_a_head_with_roles_is_passed_by_what_probably_ends_before_it_starts(need: Request) -> None:
    # Two devices, of which each has 60 leased, until 100 and until 200.
    held, old = [lease("one", 60), lease("two", 60, 1)], [running("one", (100.0,)), running("two", (200.0,))]
    for run_times, late_s, goes in (
        ((190.0,), 0.0, True),
        ((210.0,), 0.0, False),
        ((190.0, 900.0), 0.0, True),
        ((190.0, 900.0), EXPECTING.most_delay_s / 2, False),
    ):
        head = replace(job("head", need, created=1.0), promised=-late_s)
        jobs = [head, job("behind", part(0.3), created=2.0)]
        times = {"head": (1.0,), "behind": run_times}
        found = decide(jobs, host(100, 100), held, old, settings=EXPECTING, expected=expected_of(times))
        assert (started(found) == ["behind"]) is goes, (run_times, late_s)
        assert "expected to start in" in found.why["head"]


def test_of_those_behind_a_head_with_roles_only_some_pass_at_a_time() -> None:
    # With each of them it is worked out anew when the head starts, which takes time: eight times, with eight devices.
    devices = 8
    jobs = [job("head", ask(actor=(devices, 98)), created=1.0)]
    jobs += [job(f"behind-{i}", part(0.03), created=2.0 + i) for i in range(12)]
    held = [lease("old", 60, device) for device in range(devices)]
    times = (*[50.0] * 6, *[500.0] * 4)
    old, inventory = [running("old", (100.0,))], host(*[100] * devices)
    found = decide(jobs, inventory, held, old, settings=EXPECTING, expected=lambda _: times)
    assert len(started(found)) == 8
    assert "expected to start in" in found.why["head"]


class Adversary:
    """Jobs that always ran for `claimed` seconds before, and now run for `real`, come without end.

    The head wants `wanted` whole devices, as a command or with a role that has a replica on each, and always ran for
    `head_s`. What the others want is `needs`.
    """

    def __init__(
        self,
        devices: int,
        claimed: float,
        real: Callable[[int], float],
        every: float,
        delay: float,
        *,
        roles: bool = False,
        wanted: int | None = None,
        head_s: float = 10.0,
        needs: Callable[[int], CommandRequest] = lambda _: part(0.3),
        limit: Callable[[int], float | None] = lambda _: None,
    ) -> None:
        self.claimed, self.head_s, self.needs = claimed, head_s, needs
        self.real, self.every, self.limit = real, every, limit
        self.wanted = wanted or devices
        self.host = host(*[100] * devices)
        self.head = job("head", ask(actor=(self.wanted, 90)) if roles else whole(self.wanted))
        self.rules = replace(EXPECTING, most_delay_s=delay)
        self.waiting: dict[str, Job] = {}
        self.live: dict[str, tuple[float, tuple[Lease, ...]]] = {}
        self.ends: list[tuple[float, str]] = []

    def run_until_the_head_starts(self, until: float) -> tuple[float, float]:
        """Return when the head starts, `until` at the latest, and when it must have started."""
        now, number, bound = 0.0, 0, math.inf
        while now < until:
            while self.ends and self.ends[0][0] <= now:
                del self.live[heapq.heappop(self.ends)[1]]
            small = job(f"small-{number}", self.needs(number), created=now, time_limit_s=self.limit(number))
            self.waiting[small.id] = small
            number += 1
            if number == 4:
                self.waiting["head"] = replace(self.head, created=now)
            bound = min(bound, self._bound(now))
            if "head" in self._decide(now):
                break
            now += self.every
        return now, bound

    def _bound(self, now: float) -> float:
        """Return when what runs now frees enough devices, once the head is late by most_delay.

        What has a limit counts as running until that is over. What has none counts until it ends, and before that, the
        limits of the others may be what the head waits for.
        """
        promised = self.waiting["head"].promised if "head" in self.waiting else None
        if promised is None or now - promised <= self.rules.most_delay_s + 1e-6:  # to the bit, it may be either
            return math.inf
        for moment in (now, *sorted(end for end, _ in self.ends)):
            free = {device.uuid: moment for device in self.host.devices}
            for end, name in self.ends:
                limit = self._limit(name)
                known = end if end <= moment else math.inf
                known = known if limit is None else self.live[name][0] + limit
                for one in self.live[name][1]:
                    free[one.device_uuid] = max(free[one.device_uuid], known)
            if (found := sorted(free.values())[self.wanted - 1]) < math.inf:
                return found
        raise AssertionError("what has ended holds devices")

    def _limit(self, name: str) -> float | None:
        return self.limit(_number_of(name))

    def _decide(self, now: float) -> Sequence[str]:
        live = [self._running(name, began, now) for name, (began, _) in self.live.items()]
        found = decide(
            list(self.waiting.values()),
            self.host,
            [one for _, mine in self.live.values() for one in mine],
            live,
            settings=self.rules,
            now=now,
            expected=lambda job: (self.head_s if job.id == "head" else self.claimed,),
        )
        for head, expected in found.promised.items():
            self.waiting[head] = replace(self.waiting[head], promised=expected)
        for start in found.starts:
            if start.id != "head":
                del self.waiting[start.id]
                mine = leases_of_plan(start.plan, start.id)
                self.live[start.id] = now, tuple(replace(one, run_dir=f"/jobs/{start.id}") for one in mine)
                heapq.heappush(self.ends, (now + self.real(_number_of(start.id)), start.id))
        return started(found)

    def _running(self, name: str, began: float, now: float) -> Running:
        limit = self._limit(name)
        found = running(name, left_after((self.claimed,), now - began), now)
        return replace(found, ends_at=None if limit is None else began + limit)


def _number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


@pytest.mark.parametrize("roles", [False, True])
def test_without_a_bound_a_stream_that_always_runs_longer_than_expected_would_starve_the_head(roles: bool) -> None:
    adversary = Adversary(2, claimed=10.0, real=lambda _: 300.0, every=5.0, delay=1e9, roles=roles)
    assert adversary.run_until_the_head_starts(until=9000.0)[0] == 9000


NEEDS = st.sampled_from([part(0.1), part(0.3), part(0.6), whole(1), whole(2)])


NONE, ALL, HALF = 0, 1, 2
"""Of which jobs a limit is typed."""


@settings(max_examples=100)
@example(
    devices=1,
    wanted=1,
    needs=[part(0.1)],
    claimed=20.25,
    real=50.0,
    head_s=1.0,
    delay=0.0,
    seed=0,
    roles=False,
    typed=NONE,
)
@given(
    devices=st.sampled_from([1, 2, 3, 8]),
    wanted=st.integers(1, 8),
    needs=st.lists(NEEDS, min_size=1, max_size=4),
    claimed=st.floats(5, 2000),
    real=st.floats(50, 1000),
    head_s=st.floats(1, 40_000),
    delay=st.one_of(st.floats(0, 5), st.floats(0, 2000)),
    seed=st.integers(0, 9),
    roles=st.booleans(),
    typed=st.sampled_from([NONE, ALL, HALF]),
)
def test_whatever_an_adversary_claims_the_head_starts_within_the_bound(
    *,
    devices: int,
    wanted: int,
    needs: list[CommandRequest],
    claimed: float,
    real: float,
    head_s: float,
    delay: float,
    seed: int,
    roles: bool,
    typed: int,
) -> None:
    spread = [real * (1 + (seed * 7 + i * 5) % 10) / 10 for i in range(10)]
    every = max(5.0, min(claimed, real) / 2)
    limit = [20 * real / (1 + (seed + number) % 7) for number in range(7)]  # longer than any runs
    adversary = Adversary(
        devices,
        claimed,
        lambda number: spread[number % 10],
        every,
        delay,
        roles=roles,
        wanted=min(wanted, devices),
        head_s=head_s,
        needs=lambda number: needs[number % len(needs)],
        limit=lambda number: limit[number % 7] if typed and number % typed == 0 else None,
    )
    until = delay + 60 * real + 10 * every
    began, bound = adversary.run_until_the_head_starts(until)
    assert began <= bound + every
    assert began < until


def test_what_the_driver_or_a_desktop_holds_is_no_reason_not_to_expect_a_head() -> None:
    jobs = [job("head", whole(1), created=1.0), job("behind", part(0.3), created=2.0)]
    mine = DeviceProcess(pid=5, user=None, memory_mib=60, kind="C")
    screen = DeviceProcess(pid=7, user=None, memory_mib=10, kind="G")
    old, rules = running("old", (100.0,)), EXPECTING
    for used, processes in ((61, (mine,)), (70, (mine, screen))):
        inventory = host(100, used=[used])
        inventory = replace(inventory, devices=(replace(inventory.devices[0], processes=processes),))
        found = decide(jobs, inventory, [replace(OLD, pid=5)], [old], settings=rules, expected=lambda _: (9.0,))
        assert found.promised == {"head": 100.0}, used
        assert started(found) == ["behind"]


def test_a_head_that_waits_for_the_process_of_another_is_not_expected_whatever_that_holds() -> None:
    jobs = [job("head", whole(1), created=1.0), job("behind", part(0.3), created=2.0)]
    for memory_mib in (None, 0, 20):
        process = DeviceProcess(pid=4711, user="bob", memory_mib=memory_mib, kind="C")
        inventory = host(100, used=[memory_mib or 0])
        inventory = replace(inventory, devices=(replace(inventory.devices[0], processes=(process,)),))
        found = decide(jobs, inventory, settings=EXPECTING, expected=lambda _: (9.0,))
        assert found.promised == {}, memory_mib
        assert started(found) == []


def test_a_higher_priority_behind_a_head_comes_before_a_lower_one_that_needs_no_device() -> None:
    jobs = [
        job("head", whole(1), created=1.0, priority=9),
        job("short", part(0.3), created=2.0, priority=5),
        job("cpu", whole(0), created=0.0),
    ]
    for strict in (False, True):
        rules = replace(EXPECTING, most_jobs=2, strict=strict)
        old = replace(running("old", (100.0,)), ends_at=100.0)
        limited = [jobs[0], job("short", part(0.3), created=2.0, priority=5, time_limit_s=50.0), jobs[2]]
        found = decide(limited, host(100), [OLD], [old], settings=rules, expected=lambda _: (9.0,))
        assert started(found) == ["short"], strict
        assert found.why["cpu"] == "2 jobs run and at most 2 may (most_jobs in the configuration)"


def test_only_those_that_succeeded_tell_how_long_their_like_runs(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "gpusched.db")
    ends = [(JobState.SUCCEEDED, 10.0), (JobState.FAILED, 20.0), (JobState.CANCELLED, 1.0), (JobState.LOST, 2.0)]
    for number, (state, seconds) in enumerate(ends * 3):
        ended = replace(job(f"run-{number}", part(0.3)), state=state, started=100.0, ended=100.0 + seconds)
        store.add(ended)
    table = JobTable(store)
    known = Expectations(table)
    new = job("new", part(0.3))
    assert known.expected(new) == (10, 10, 10)
    known.note_end(replace(new, state=JobState.SUCCEEDED, started=0.0, ended=30.0))
    assert known.expected(new) == (10, 10, 10, 30)
    store.close()


def test_a_sweep_is_no_run_itself_and_its_members_hide_no_earlier_jobs_from_the_next_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectations, "_REMEMBERED", 5)
    store = Store.open(tmp_path / "gpusched.db")
    over = {"state": JobState.SUCCEEDED, "started": 100.0}
    for number in range(3):
        store.add(replace(job(f"run-{number}", part(0.3)), ended=150.0 + number, **over))
    echo = Workload(name="test", roles=(Role(name="command", command=("echo", "hi")),))
    member = job("run-7[0]", part(0.3), workload=echo)
    store.add(replace(job("run-7", part(0.3), workload=echo, array=Array(count=9)), ended=9000.0, **over))
    for number in range(9):
        store.add(replace(member, id=f"run-7[{number}]", array="run-7", ended=200.0, **over))
    found = Expectations(JobTable(store))
    assert found.expected(job("new", part(0.3))) == (50.0, 51.0, 52.0)
    assert set(found.expected(member)) == {100.0}
    store.close()


def test_where_the_store_cannot_be_read_the_queue_goes_on_as_a_new_one(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "gpusched.db")
    store.add(replace(job("run-1", part(0.3)), state=JobState.SUCCEEDED, started=1.0, ended=2.0))
    store._database.run("UPDATE jobs SET record=x'00'")
    assert Expectations(JobTable(store)).expected(job("new", part(0.3))) == PRIOR
    store.close()


MACHINE = "2x16GiB"


def occupied(daemon: Daemon) -> tuple[str, str]:
    """Let three short jobs end; then one has a device of two, and a head wants both. Return both of these."""
    for _ in range(3):
        assert daemon.wait(daemon.submit("true", need=part(0.3), machine=MACHINE)).state is JobState.SUCCEEDED
    holder = daemon.submit("sleep", "600", need=whole(1), machine=MACHINE)
    daemon.wait(holder, JobState.RUNNING)
    return holder, daemon.submit("sleep", "1", need=whole(2), machine=MACHINE)


def test_the_daemon_lets_a_command_pass_that_ran_shortly_before_also_after_kill_9(daemon: Daemon) -> None:
    daemon.start()
    _, head = occupied(daemon)
    daemon.kill()
    daemon.start()
    assert daemon.wait(daemon.submit("true", need=part(0.3), machine=MACHINE)).state is JobState.SUCCEEDED
    waiting = daemon.job(head)
    assert waiting.state is JobState.QUEUED
    assert "expected to start in" in str(waiting.why)


def test_a_strict_daemon_lets_it_wait(daemon: Daemon) -> None:
    (daemon.command.home / "strict.toml").write_text("strict = true\n")
    daemon.env["GPUSCHED_CONFIG"] = str(daemon.command.home / "strict.toml")
    daemon.start()
    _, head = occupied(daemon)
    short = daemon.submit("true", need=part(0.3), machine=MACHINE)
    until(lambda: "could then start later" in str(daemon.job(short).why), "it may not pass")
    assert daemon.job(short).state is daemon.job(head).state is JobState.QUEUED


def test_when_a_head_was_first_expected_is_on_disk(daemon: Daemon) -> None:
    daemon.start()
    _, head = occupied(daemon)
    until(lambda: "expected to start in" in str(daemon.job(head).why), "it is expected")
    daemon.ask(Shutdown())
    assert daemon.process is not None
    daemon.process.wait(PATIENCE_S)
    waiting = saved(daemon, head)
    assert waiting.promised is not None
    assert waiting.promised > waiting.created


def saved(daemon: Daemon, job_id: str) -> Job:
    """A job as it is on disk. No daemon may run."""
    store = Store.open(daemon.state / "gpusched.db")
    found = store.job(job_id)
    store.close()
    assert found is not None
    return found


def test_each_member_of_an_array_is_a_head_of_its_own_that_is_not_late_because_one_before_it_was(
    daemon: Daemon,
) -> None:
    def expected() -> float | None:
        until(lambda: "expected to start in" in str(daemon.job(array).why), "a member is expected")
        daemon.kill()
        found = saved(daemon, array).promised
        daemon.start()
        return found

    daemon.start()
    holder, head = occupied(daemon)
    daemon.ask(Stop(ids=(head,)))
    array = daemon.submit("sleep", "600", need=whole(2), machine=MACHINE, array=Array(count=2))
    first = expected()
    daemon.ask(Stop(ids=(holder,)))
    until(lambda: (found := daemon.job(array).array) is not None and found.live == 1, "the first member runs")
    second = expected()
    assert first is not None
    assert second is not None
    assert second != first


def test_a_job_that_was_held_is_not_late_for_that(daemon: Daemon) -> None:
    daemon.start()
    _, head = occupied(daemon)
    until(lambda: "expected to start in" in str(daemon.job(head).why), "it is expected")
    daemon.ask(Hold(ids=(head,), held=True))
    daemon.kill()
    assert saved(daemon, head).promised is None
