"""The peers of `bench.queue_trace` on cases that are computed by hand, and what is drawn from the trace."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from bench.queue_trace.bounds import clairvoyant
from bench.queue_trace.experiments import (
    BETWEEN,
    CROWDS,
    QUEUES,
    forecasts,
    pass_times,
    predictions,
    saturation,
    shares_and_whole_hosts,
    waits,
)
from bench.queue_trace.ours import Gpusched, LaunchPlacement, RunPlacement, host, launch_of, submission_of
from bench.queue_trace.peers import Conservative, Counted, Fragmentation, PeerQueue, share_rules
from bench.queue_trace.simulation import Queue, simulate
from bench.queue_trace.trace import SHAPES, Arrival, People, Task, arrivals, read_trace
from gpusched.execution.plans import plan_for
from gpusched.leases.directory import leases_of_replicas
from tests.planner.building import dice

BEST = share_rules([Task(1, 1000)], dice(0))["best fit"]


class Recorded:
    """A queue, and when each job started."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.began: dict[int, float] = {}
        self.arrive, self.end, self.next_start = queue.arrive, queue.end, queue.next_start

    def starts(self, now: float) -> list[int]:
        found = self._queue.starts(now)
        self.began |= dict.fromkeys(found, now)
        return found


def began(queue: Queue, *jobs: Arrival, devices: int = 2) -> list[float]:
    recorded = Recorded(queue)
    simulate(jobs, recorded, devices)
    return [recorded.began[job.number] for job in jobs]


def whole(number: int, came: float, gpus: int, run_s: float, limit_s: float | None = None) -> Arrival:
    return Arrival(number, Task(gpus, 1000, run_s), came, limit_s)


# On two devices: one runs until 100; the second job needs both; the third is short and the fourth long.
CASE = (whole(0, 0, 1, 100, 120), whole(1, 1, 2, 10, 10), whole(2, 2, 1, 50, 60), whole(3, 3, 1, 500, 500))


def test_fifo_lets_nobody_pass() -> None:
    assert began(PeerQueue(2, BEST, "fifo"), *CASE) == [0, 100, 110, 110]


def test_greedy_starts_whatever_fits_and_the_large_job_waits_for_all() -> None:
    assert began(PeerQueue(2, BEST, "greedy"), *CASE) == [0, 552, 2, 52]


def test_easy_lets_those_pass_that_end_before_the_reservation_by_what_was_typed() -> None:
    # The head's reservation is at 120, by the first job's limit: 2 + 60 is before it, 52 + 500 is not.
    assert began(PeerQueue(2, BEST, "easy"), *CASE) == [0, 100, 2, 110]
    late = (*CASE[:2], whole(2, 2, 1, 50, 200), CASE[3])
    assert began(PeerQueue(2, BEST, "easy"), *late) == [0, 100, 110, 110]


def test_easy_lets_those_pass_that_have_a_place_beside_the_reservation() -> None:
    jobs = (whole(0, 0, 2, 100, 100), whole(1, 1, 3, 10, 10), whole(2, 2, 1, 5000, 5000))
    assert began(PeerQueue(4, BEST, "easy"), *jobs, devices=4) == [0, 100, 2]
    assert began(PeerQueue(3, BEST, "easy"), *jobs, devices=3) == [0, 100, 110]


def test_easy_may_try_the_shortest_limit_first() -> None:
    # Both would end before the head's reservation at 120, but only one has room.
    jobs = (*CASE[:2], whole(2, 2, 1, 100, 100), whole(3, 2, 1, 50, 60))
    assert began(PeerQueue(2, BEST, "easy"), *jobs) == [0, 102, 2, 112]
    assert began(PeerQueue(2, BEST, "easy", shortest_limit_first=True), *jobs) == [0, 100, 110, 2]


def test_conservative_gives_each_the_earliest_place_that_delays_no_earlier_one() -> None:
    jobs = (whole(0, 0, 1, 100), whole(1, 1, 2, 10), whole(2, 2, 1, 98), whole(3, 3, 1, 1))
    assert began(Conservative(2), *jobs) == [0, 100, 2, 110]


def test_shortest_first_knows_the_run_times() -> None:
    jobs = (whole(0, 0, 2, 100), whole(1, 1, 2, 50), whole(2, 2, 2, 10))
    assert began(PeerQueue(2, BEST, "greedy", shortest_first=True), *jobs) == [0, 110, 100]


def test_shares_go_where_each_rule_says() -> None:
    tasks = [Task(0, 400), Task(1, 1000)]
    rules = share_rules(tasks, dice(0))
    free = [1000, 500, 700]
    assert rules["best fit"](free, [0, 1, 2], tasks[0]) == 1
    assert rules["worst fit"](free, [0, 1, 2], tasks[0]) == 0
    assert rules["first fit"](free, [0, 1, 2], tasks[0]) == 0
    assert Fragmentation(tasks).fragment([1000]) == 0
    assert Fragmentation(tasks).fragment([500]) == 250  # of no use to the one that wants a whole device


def test_fgd_takes_the_device_on_which_least_becomes_useless_and_best_fit_the_fullest() -> None:
    rules = share_rules([Task(0, 400), Task(1, 1000)], dice(0))
    # A whole device stays, and of the other two the smaller rest is of no use to a share: (100 + 800) / 2 is least.
    assert rules["FGD"]([1000, 500, 700], [0, 1, 2], Task(0, 400)) == 1
    # 100 are of no use to the next share on the first, nothing on the second.
    assert rules["FGD"]([500, 800], [0, 1], Task(0, 400)) == 1
    assert rules["best fit"]([500, 800], [0, 1], Task(0, 400)) == 0


def test_who_knows_what_comes_allocates_more_than_who_does_not() -> None:
    coming = [Task(0, 500), Task(0, 600), Task(0, 400), Task(0, 500)]
    placed = Counted(2, share_rules(coming, dice(0))["first fit"])
    assert [placed.place(task) for task in coming] == [True, True, True, False]
    assert clairvoyant(coming, 2, 1000, lambda _: 0.0) == (2.0, True)


@pytest.mark.parametrize("jobs", [CASE, CASE[:3]])
def test_a_strict_daemon_never_delays_the_head_of_the_case(jobs: Sequence[Arrival]) -> None:
    found = began(Gpusched(host(2), strict=True), *jobs)
    assert found[1] == 100
    assert found[2] == 2


def test_run_and_launches_of_the_queue_place_as_best_fit_does_and_the_trace_is_whole() -> None:
    tasks = read_trace()
    assert len(tasks) == 7064
    assert len({task.shape for task in tasks}) == 126
    random = dice(3)
    coming = [random.choice(tasks) for _ in range(30)]
    best = Counted(8, BEST)
    placed = [best.place(task) for task in coming]
    for ours in (RunPlacement(host(8)), LaunchPlacement(host(8), None, grow=False)):
        assert [ours.place(task) for task in coming] == placed


def test_a_stream_is_the_same_whatever_is_typed_or_known_and_has_the_load() -> None:
    tasks = read_trace()
    streams = [
        arrivals(tasks, 8, 0.9, 5000, 1),
        arrivals(tasks, 8, 0.9, 5000, 1, "x1-5"),
        arrivals(tasks, 8, 0.9, 5000, 1, people=People(0.5)),
        arrivals(tasks, 8, 0.9, 5000, 1, people=People(0.5, 0.25)),
    ]
    plain, limited, repeated, some_new = streams
    assert [(one.task, one.came) for one in plain] == [(one.task, one.came) for one in limited]
    assert [(one.task, one.came) for one in plain] == [(one.task, one.came) for one in repeated]
    assert all(one.task.run_s <= (one.limit_s or 0) <= 5 * one.task.run_s for one in limited)
    assert all(one.earlier is None for one in plain)
    assert all(len(one.earlier or ()) == 5 for one in repeated)
    assert {len(one.earlier or ()) for one in some_new} == {0, 5}
    assert 0.2 < sum(one.earlier == () for one in some_new) / 5000 < 0.3
    assert [one.earlier for one in some_new if one.earlier] == [
        one.earlier for one, other in zip(repeated, some_new, strict=True) if other.earlier
    ]
    work = sum(one.task.size * one.task.run_s for one in plain)
    assert 0.7 < work / 8 / plain[-1].came < 1.1


def test_every_queue_starts_every_job_of_a_short_stream() -> None:
    tasks = read_trace()
    found = dict(waits(QUEUES, tasks, 8, 0.9, 60, 0))
    assert list(found) == [one.name for one in QUEUES]
    assert all(0 <= row["mean wait h"] < 1000 and 0 < row["use %"] <= 100 for row in found.values())


def test_passes_between_events_and_the_bound_are_part_of_what_is_measured() -> None:
    tasks = read_trace()
    found = dict(waits([*BETWEEN[:2]], tasks, 8, 1.1, 60, 0))
    assert all(row["beyond the bound"] == 0 and row["latest h"] >= 0 for row in found.values())
    queue = Gpusched(host(8), pass_every_s=600.0)
    simulate(arrivals(tasks, 8, 1.5, 200, 0), queue, 8)
    events = Gpusched(host(8))
    simulate(arrivals(tasks, 8, 1.5, 200, 0), events, 8)
    assert len(queue.spent_s) > len(events.spent_s)


def test_a_job_that_never_fits_ends_the_simulation_with_an_error() -> None:
    with pytest.raises(RuntimeError, match="1 jobs never started"):
        simulate([whole(0, 0, 2, 10)], Gpusched(host(1), pass_every_s=60.0), 1)


def test_a_bound_that_does_not_hold_is_seen() -> None:
    queue = Gpusched(host(1), most_delay_s=100.0)
    queue.arrive(whole(0, 0, 1, 1000))
    assert queue.starts(0) == [0]
    queue.arrive(whole(1, 1, 1, 10))
    assert queue.starts(1) == []
    queue.waiting[1] = replace(queue.waiting[1], promised=2.0)
    assert queue.starts(110) == []
    queue.end(0, 5000)  # 4000 s later than the trace has it
    assert queue.starts(5000) == [1]
    assert queue.beyond_s == [4000]


def test_how_well_starts_are_foretold_is_counted_of_those_that_wait() -> None:
    found = forecasts(read_trace(), 8, 1.1, 120, 0, SHAPES)
    assert found["within"] + found["sooner"] + found["later"] + found["unknown"] == pytest.approx(100)
    assert found["off h"] >= 0


def test_commands_that_always_take_as_long_are_predicted_to_the_second_and_shapes_are_not() -> None:
    tasks = read_trace()
    same, shapes = (predictions(tasks, 200, 0, people) for people in (People(0.0), SHAPES))
    assert same["ours"] == pytest.approx(100)
    assert same["last two"] == pytest.approx(100)
    assert shapes["ours"] < 90
    assert all(20 < each["limits"] < 60 for each in (same, shapes))  # 1 to 5 times too long


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_pass_is_timed_on_an_idle_and_on_a_full_host_and_after_an_end(crowd: str) -> None:
    found = pass_times(read_trace(), 2, 20, 0, "none", crowd)
    assert list(found) == ["idle host", "full host", "after an end", "longest"]
    assert min(found.values()) > 0


def test_a_launch_of_one_process_gets_what_the_command_of_the_same_task_gets() -> None:
    for task in {task.shape: task for task in read_trace()}.values():
        job, here = Arrival(0, task, 0.0), host(8)
        command, launch = (
            [
                one
                for replica in plan_for(asked, here, (), Gpusched(here).settings).replicas
                for one in leases_of_replicas([replica], "x")
            ]
            for asked in (submission_of(job), launch_of(job))
        )
        assert [(one.device_uuid, one.whole) for one in command] == [(one.device_uuid, one.whole) for one in launch]
        assert [one.share_mib for one in command] == pytest.approx([one.share_mib for one in launch], abs=2)


@pytest.mark.parametrize(("delay_s", "past"), [(600.0, True), (1e9, False)])
def test_the_bound_keeps_a_stream_of_shares_from_starving_who_wants_all_devices(delay_s: float, past: bool) -> None:
    shares = [task for task in read_trace() if not task.gpus]
    mixed = shares[:190] + [Task(2, 1000, 3600.0)] * 10
    queue = Gpusched(host(2), most_delay_s=delay_s)
    simulate(arrivals(mixed, 2, 0.95, 400, 0, people=People(1.0)), queue, 2)
    assert (len(queue.beyond_s) > 10) is past  # heads that were later than the bound: what ran then kept them
    assert max(queue.beyond_s, default=0.0) == 0
    assert (max(queue.late_s) < 30 * 3600) is past


def test_a_stream_of_shares_has_a_job_now_and_then_that_wants_all_devices() -> None:
    mixed = shares_and_whole_hosts(read_trace(), 8)
    whole_hosts = sum(task.gpus == 8 for task in mixed)
    assert all(task.gpus in (0, 8) for task in mixed)
    assert 0.004 < whole_hosts / len(mixed) < 0.006


def test_nothing_allocates_more_than_who_knows_what_comes() -> None:
    found = saturation(read_trace(), 4, 1)
    assert max(found.values()) <= found["clairvoyant"] + 1e-9
