"""The most memory that each attempt of a replica was seen to take of its devices."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.daemon.device_meter import DeviceMeter
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.status import JobStatus
from gpusched.model.usage import DeviceUse, Usage
from tests.daemon.test_overrun import device, host, jobs, leases


def measured(job: JobStatus, *attempts: int) -> JobStatus:
    """The job, with the usage of these attempts of its first replica."""
    usage = tuple(Usage(attempt=number, seconds=1.0) for number in attempts)
    return replace(job, replicas=(replace(job.replicas[0], usage=usage), *job.replicas[1:]))


def peaks(meter: DeviceMeter, job: JobStatus) -> list[int | None]:
    return [usage.device_mib for usage in meter.merged(job).replicas[0].usage]


@given(st.lists(st.lists(st.integers(0, 9000), min_size=2, max_size=2), min_size=1, max_size=20))
def test_the_peak_is_the_most_that_a_poll_has_shown(polls: Sequence[Sequence[int]]) -> None:
    meter, (job,) = DeviceMeter(), jobs(2)
    for uses in polls:
        meter.sample(host(device(uses)), leases(2), (job,), 0.0)
    assert peaks(meter, measured(job, 0)) == [max(first for first, _ in polls)]
    assert {use.device_mib for use in meter.seen(job.id)} <= {mib for uses in polls for mib in uses}


def test_all_processes_of_a_replica_and_all_its_devices_count_together() -> None:
    own = (*leases(1), Lease(device_uuid="GPU-2", share_mib=0, job="snake-1", replica="actor.0", pid=101, run_dir="/j"))
    meter, (job,) = DeviceMeter(), jobs(1)
    meter.sample(host(device([800, 70]), device([900], uuid="GPU-2")), own, (job,), 0.0)
    assert peaks(meter, measured(job, 0)) == [1770]


def test_an_amount_that_the_driver_does_not_report_is_no_peak_and_takes_none_back() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    meter.sample(host(device([None])), leases(1), (job,), 0.0)
    assert peaks(meter, measured(job, 0)) == [None]
    meter.sample(host(device([300])), leases(1), (job,), 0.0)
    meter.sample(host(device([None])), leases(1), (job,), 0.0)
    assert peaks(meter, measured(job, 0)) == [300]


def test_each_attempt_has_a_peak_of_its_own() -> None:
    meter, (first,) = DeviceMeter(), jobs(1)
    again = replace(first, replicas=(replace(first.replicas[0], restarts=1),))
    meter.sample(host(device([900])), leases(1), (first,), 0.0)
    meter.sample(host(device([200])), leases(1), (again,), 0.0)
    assert peaks(meter, measured(again, 0, 1)) == [900, 200]


def test_what_an_earlier_daemon_has_seen_counts_and_a_job_that_is_over_is_forgotten() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    meter.load(job.id, (DeviceUse(replica="actor.0", attempt=0, device_mib=700),))
    meter.sample(host(device([500])), leases(1), (job,), 0.0)
    meter.load(job.id, ())
    assert peaks(meter, measured(job, 0)) == [700]
    assert meter.seen(job.id) == (DeviceUse(replica="actor.0", attempt=0, device_mib=700, processes=1),)
    meter.forget(job.id)
    assert peaks(meter, measured(job, 0)) == [None]


def test_simulated_jobs_and_processes_without_a_share_are_left_out() -> None:
    meter, (job,) = DeviceMeter(), jobs(1, simulated=True)
    meter.sample(host(device([500])), leases(1), (job,), 0.0)
    assert not meter.seen(job.id)
    meter.sample(host(device([500])), (), jobs(1), 0.0)
    assert not meter.seen(job.id)


def busy(*percent: int | None) -> Inventory:
    """A host on whose device the processes 100 and so on ran kernels for these parts of the time."""
    one = device([100] * len(percent))
    processes = tuple(replace(each, sm_percent=sm) for each, sm in zip(one.processes, percent, strict=True))
    return host(replace(one, processes=processes))


def shares(meter: DeviceMeter, job: JobStatus) -> list[float | None]:
    return [usage.sm_percent for usage in meter.merged(job).replicas[0].usage]


@given(st.lists(st.tuples(st.floats(1, 30), st.integers(0, 100)), min_size=1, max_size=20))
def test_how_busy_it_was_is_the_mean_over_the_time(readings: Sequence[tuple[float, int]]) -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    now = 0.0
    meter.sample(busy(None), leases(1), (job,), now)
    for seconds, percent in readings:
        now += seconds
        meter.sample(busy(percent), leases(1), (job,), now)
    expected = sum(seconds * percent for seconds, percent in readings) / sum(seconds for seconds, _ in readings)
    (found,) = shares(meter, measured(job, 0))
    assert found is not None
    assert abs(found - expected) < 0.06


def test_what_is_not_known_counts_neither_as_busy_nor_as_idle() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    for now, percent in ((0.0, None), (5.0, 80), (10.0, None), (15.0, 40)):
        meter.sample(busy(percent), leases(1), (job,), now)
    assert shares(meter, measured(job, 0)) == [60.0]
    silent, (other,) = DeviceMeter(), jobs(1)
    silent.sample(busy(None), leases(1), (other,), 0.0)
    silent.sample(busy(None), leases(1), (other,), 5.0)
    assert shares(silent, measured(other, 0)) == [None]


def test_processes_of_one_replica_are_busy_together_and_no_more_than_all_the_time() -> None:
    own = (*leases(1), Lease(device_uuid="GPU-1", share_mib=0, job="snake-1", replica="actor.0", pid=101, run_dir="/j"))
    meter, (job,) = DeviceMeter(), jobs(1)
    for now in (0.0, 5.0):
        meter.sample(busy(70, 60), own, (job,), now)
    assert shares(meter, measured(job, 0)) == [100.0]


def test_a_daemon_that_was_halted_takes_no_reading_for_hours() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    for now, percent in ((0.0, 0), (60.0, 100), (100_000.0, 0)):
        meter.sample(busy(percent), leases(1), (job,), now)
    assert shares(meter, measured(job, 0)) == [50.0]


def test_a_replica_counts_from_its_own_first_reading() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    meter.sample(busy(), (), (), 0.0)
    for now, percent in ((50.0, 0), (55.0, 100), (60.0, 100)):
        meter.sample(busy(percent), leases(1), (job,), now)
    assert shares(meter, measured(job, 0)) == [100.0]


def test_of_many_attempts_the_latest_are_kept() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    for attempt in range(20):
        again = replace(job, replicas=(replace(job.replicas[0], restarts=attempt),))
        meter.sample(host(device([attempt])), leases(1), (again,), float(attempt))
    assert [use.attempt for use in meter.seen(job.id)] == [17, 18, 19]


def framework(job: JobStatus, pool: int | None, *, processes: int | None = 1) -> JobStatus:
    usage = Usage(attempt=0, seconds=60.0, pool_mib=pool, processes=processes)
    return replace(job, replicas=tuple(replace(one, usage=(usage,)) for one in job.replicas))


def contexts(meter: DeviceMeter, job: JobStatus) -> list[int | None]:
    return [one.usage[-1].context_mib for one in meter.merged(job).replicas]


def test_a_context_is_what_the_driver_shows_beside_the_pool_once_that_has_stayed() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    for number, mib in enumerate([300, 700, 720, 719]):
        meter.sample(host(device([mib])), leases(1), (job,), 5.0 * number)
        known = contexts(meter, framework(job, 500))
        assert known == ([None] if number < 3 else [220]), number
    assert meter.merged(framework(job, 500)).replicas[0].usage[-1].driver == host(device([1])).driver_version


def test_a_context_is_not_known_of_several_processes_without_a_pool_or_below_it() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    for second in range(3):
        meter.sample(host(device([700])), leases(1), (job,), float(second))
    assert contexts(meter, framework(job, 500)) == [200]
    assert contexts(meter, framework(job, 500, processes=2)) == [None]
    assert contexts(meter, framework(job, None)) == [None]
    assert contexts(meter, framework(job, 701)) == [None]


def test_with_the_drivers_account_of_a_process_what_it_held_between_two_polls_counts_too() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    shown = host(device([300]))
    (one,) = shown.devices[0].processes
    spike = replace(shown, devices=(replace(shown.devices[0], processes=(replace(one, peak_mib=1900),)),))
    meter.sample(shown, leases(1), (job,), 0.0)
    meter.sample(spike, leases(1), (job,), 5.0)
    assert peaks(meter, measured(job, 0)) == [1900]
