"""Who is called idle, and who never is: by traces of hours, by properties, and at the size of a large host."""

import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.daemon.idleness import Idleness
from gpusched.daemon.quiet_time import Seen, idle_s, observed
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.idle import Quiet
from gpusched.model.lease import Lease
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.model.usage import Usage
from gpusched.storage.job import Job
from tests.daemon.idle_traces import AFTER_S, TRACES, Trace, called_idle, table
from tests.daemon.test_overrun import device, host, jobs, leases
from tests.storage.records import ended

PAGE = Path(__file__).parents[2] / "docs" / "idle.md"
STEPS = st.lists(st.tuples(st.floats(1, 90), st.sampled_from([True, False, None]), st.booleans()), max_size=120)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: f"{trace.kind}: {trace.what}")
def test_none_that_works_is_called_idle_and_each_that_is_idle_is(trace: Trace) -> None:
    assert called_idle(trace) == pytest.approx(trace.idle, abs=0.1)


def test_the_table_of_the_document_is_that_of_the_traces() -> None:
    assert len(TRACES) >= 40
    assert table() in PAGE.read_text(), "python -m tests.daemon.idle_traces"


@given(STEPS)
def test_idle_is_only_who_was_seen_to_do_nothing_for_the_whole_time(
    steps: list[tuple[float, bool | None, bool]],
) -> None:
    after_s, now, quiet = 300.0, 0.0, observed(None, 0, Seen(None), 0.0, 300.0)
    last_use = 0.0
    for passed, used, loads in steps:
        now += passed
        quiet = observed(quiet, 0, Seen(used, loads), now, after_s)
        if used:
            last_use = now
        seconds = idle_s(quiet, after_s)
        assert seconds is None or after_s <= seconds <= now - last_use
        assert seconds is None or not loads or now - quiet.since >= 5 * after_s


@given(STEPS, st.floats(121, 5000))
def test_a_gap_of_more_than_two_minutes_begins_it_again(
    steps: list[tuple[float, bool | None, bool]], gap: float
) -> None:
    now, quiet = 0.0, observed(None, 0, Seen(False), 0.0, 300.0)
    for passed, used, loads in steps:
        now += passed
        quiet = observed(quiet, 0, Seen(used, loads), now, 300.0)
    after = observed(quiet, 0, Seen(False), now + gap, 300.0)
    assert (after.since, after.rests) == (now + gap, now + gap)


def test_a_saved_state_of_another_boot_is_a_gap() -> None:
    saved = Quiet(since=0.0, rests=0.0, polled=50_000.0, used=True)
    assert idle_s(observed(saved, 0, Seen(False), 30.0, 300.0), 300.0) is None


def test_what_an_earlier_daemon_has_seen_counts() -> None:
    first, (job,) = Idleness(300.0, 1.0), jobs(1)
    job = replace(job, replicas=(replace(job.replicas[0], device_uuid="GPU-1"),))
    for now in range(0, 1000, 5):
        first.sample(busy(0), leases(1), (job,), float(now))
    second = Idleness(300.0, 1.0)
    second.load(job.id, first.quiet(job.id))
    second.sample(busy(None), leases(1), (job,), 1010.0)  # a probe's first reading has no figures of processes
    second.sample(busy(0), leases(1), (job,), 1015.0)
    assert second.idle_s(job.id) == 715.0  # it was not seen to use the device: for 300 s it loaded
    second.forget(job.id)
    assert second.idle_s(job.id) is None


def busy(percent: int | None) -> Inventory:
    one = device([100])
    return host(replace(one, processes=(replace(one.processes[0], sm_percent=percent),)))


@pytest.mark.parametrize("below", [1.0, 5.0])
def test_the_least_part_of_the_time_that_counts_is_configurable(below: float) -> None:
    idleness, (job,) = Idleness(60.0, below), jobs(1)
    job = replace(job, replicas=(replace(job.replicas[0], device_uuid="GPU-1"),))
    for now in range(0, 300, 5):
        idleness.sample(busy(3), leases(1), (job,), float(now))
    assert (idleness.idle_s(job.id) is None) is (below == 1.0)


def test_processes_of_no_job_that_hold_memory_and_do_nothing_are_found_and_those_that_draw_are_not() -> None:
    idleness = Idleness(300.0, 1.0)
    processes = tuple(
        DeviceProcess(pid=pid, memory_mib=900, kind=kind, sm_percent=sm)
        for pid, kind, sm in ((1, "C", 0), (2, "C", 30), (3, "G", 0), (4, "C", None), (100, "C", 0))
    )
    one = Device(index=0, uuid="GPU-1", name="V100", utilization_percent=30, processes=processes)
    for now in range(0, 1000, 30):
        idleness.sample(host(one), leases(1), (), float(now))
    assert idleness.others() == {("GPU-1", 1): 690.0}
    idleness.sample(host(replace(one, processes=())), leases(1), (), 1000.0)
    assert idleness.others() == {}


def test_it_costs_next_to_nothing_with_64_devices_and_500_processes() -> None:
    many = [
        Device(
            index=n,
            uuid=f"GPU-{n}",
            name="H100",
            utilization_percent=50,
            processes=tuple(DeviceProcess(pid=1000 + n * 8 + k, memory_mib=900, sm_percent=k) for k in range(8)),
        )
        for n in range(64)
    ]
    held = tuple(
        Lease(
            device_uuid=f"GPU-{n}", share_mib=1000, job=f"run-{n}", replica=f"a.{k}", pid=1000 + n * 8 + k, run_dir="/j"
        )
        for n in range(64)
        for k in range(8)
    )
    running = [
        JobStatus(
            id=f"run-{n}",
            workload="run",
            state=JobState.RUNNING,
            counts=(),
            run_dir="/j",
            replicas=tuple(
                ReplicaStatus(
                    name=f"a.{k}",
                    role="a",
                    state=ReplicaState.RUNNING,
                    pid=1000 + n * 8 + k,
                    device_uuid=f"GPU-{n}",
                    usage=(Usage(attempt=0, seconds=60.0, cpu_s=1.0),),
                )
                for k in range(8)
            ),
        )
        for n in range(64)
    ]
    idleness, inventory = Idleness(AFTER_S, 1.0), host(*many)
    spent = []
    for poll in range(20):
        began = time.thread_time()
        idleness.sample(inventory, held, running, 5.0 * poll)
        spent.append(time.thread_time() - began)
    assert min(spent) < 0.05, "1 % of a core, at a poll each five seconds; the fastest shows what it takes"
    print(f"\n{1000 * min(spent):.2f} ms a poll")


def holding(count: int, **fields: object) -> JobStatus:
    """A job whose replicas hold shares of one device."""
    (job,) = jobs(count)
    return replace(job, replicas=tuple(replace(one, device_uuid="GPU-1", **fields) for one in job.replicas))


def hours_of(job: JobStatus, own: tuple[Lease, ...], *devices: Device) -> float | None:
    idleness = Idleness(300.0, 1.0)
    for now in range(0, 7200, 5):
        idleness.sample(host(*devices), own, (job,), float(now))
    return idleness.idle_s(job.id)


def test_a_process_of_the_job_counts_though_no_replica_is_known_for_it_and_wherever_it_runs() -> None:
    escaped = replace(leases(1)[0], share_mib=0, pid=55, replica="")
    works = DeviceProcess(pid=55, memory_mib=900, sm_percent=50)
    rests = DeviceProcess(pid=100, memory_mib=900, sm_percent=0)
    here = Device(index=0, uuid="GPU-1", name="V100", utilization_percent=50, processes=(rests, works))
    quiet = replace(here, utilization_percent=0, processes=(rests,))
    there = replace(here, uuid="GPU-2", processes=(works,))
    assert hours_of(holding(2), (*leases(2), escaped), here) is None
    assert hours_of(holding(2), (*leases(2), escaped), quiet, there) is None
    assert hours_of(holding(2), (*leases(2), escaped), quiet) is not None


def test_a_job_that_has_given_its_devices_back_is_not_idle_whatever_else_of_it_goes_on() -> None:
    quiet = Device(index=0, uuid="GPU-1", name="V100", utilization_percent=0)
    assert hours_of(holding(2, state=ReplicaState.EXITED), (), quiet) is None
    assert hours_of(holding(2), leases(2), quiet) is not None
    assert hours_of(holding(2, state=ReplicaState.BACKOFF), leases(2), quiet) is None


def test_a_job_that_was_saved_before_there_was_any_of_this_is_read() -> None:
    saved = msgspec.to_builtins(ended(1))
    new = {"quiet", "idle_since"}
    assert new <= saved.keys()
    of_submission = {"idle_end_s", "ignore_foreign"}
    older = {name: value for name, value in saved.items() if name not in new}
    older["submission"] = {name: one for name, one in older["submission"].items() if name not in of_submission}
    assert msgspec.convert(older, Job) == ended(1)
