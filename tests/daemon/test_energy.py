"""Energy of devices is dealt out to the processes on them, all of it and no more."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.daemon.device_meter import DeviceMeter
from gpusched.daemon.energy import Energy, EnergyMeter
from gpusched.model.device import Device, DeviceProcess
from gpusched.model.usage import DeviceUse
from tests.daemon.test_overrun import host, jobs, leases


def device(energy_j: int | None, busy: Sequence[int | None], uuid: str = "GPU-1", first: int = 100) -> Device:
    """A device with processes first, first+1, ... whose kernels ran for these parts of the time."""
    processes = tuple(DeviceProcess(pid=first + at, memory_mib=100, sm_percent=sm) for at, sm in enumerate(busy))
    return Device(index=0, uuid=uuid, name="V100", memory_total_mib=16000, energy_j=energy_j, processes=processes)


def used(*readings: Device) -> dict[Any, Energy]:
    meter = EnergyMeter()
    found: dict[Any, Energy] = {}
    for reading in readings:
        found = meter.since_last(host(reading), {})
    return found


def test_a_process_that_is_alone_has_it_all_and_it_is_not_attributed_even_where_its_kernels_are_not_counted() -> None:
    assert used(device(1000, [None]), device(1600, [None])) == {100: Energy(600.0, attributed=False)}


def test_of_several_each_has_its_part_by_the_time_in_which_its_kernels_ran() -> None:
    found = used(device(1000, [30, 10]), device(1400, [30, 10]))
    assert found == {100: Energy(300.0, attributed=True), 101: Energy(100.0, attributed=True)}


def test_while_no_kernel_runs_all_have_equal_parts() -> None:
    assert used(device(0, [0, 0]), device(100, [0, 0]))[101] == Energy(50.0, attributed=True)


@pytest.mark.parametrize(
    "readings",
    [
        [device(1000, [50])],
        [device(None, [50]), device(1000, [50])],
        [device(1000, [50]), device(None, [50])],
        [device(1000, [50]), device(200, [50])],
        [device(1000, [50, None]), device(1600, [50, None])],
    ],
    ids=["first reading", "not counted before", "not counted now", "counted anew", "one of two is unknown"],
)
def test_what_is_not_known_is_no_amount(readings: Sequence[Device]) -> None:
    assert used(*readings) == {}


@given(st.lists(st.tuples(st.integers(0, 10**6), st.lists(st.integers(0, 100), min_size=1, max_size=5)), min_size=1))
def test_all_that_a_device_used_is_dealt_out(steps: Sequence[tuple[int, Sequence[int]]]) -> None:
    meter, total, dealt = EnergyMeter(), 0, 0.0
    meter.since_last(host(device(0, [0])), {})
    for joules, busy in steps:
        total += joules
        dealt += sum(one.joules for one in meter.since_last(host(device(total, busy)), {}).values())
    assert dealt == pytest.approx(total)


def test_a_replicas_energy_is_that_of_its_processes_on_all_devices_from_its_second_poll_on() -> None:
    meter, (job,) = DeviceMeter(), jobs(2)
    readings = [
        (host(device(at, [10, 30]), device(at, [5], "GPU-2", first=101)), float(second))
        for second, at in enumerate((0, 400, 800))
    ]
    for inventory, now in readings:
        meter.sample(inventory, leases(2), (job,), now)
    first, second = meter.seen(job.id)
    assert (first.energy_j, first.energy_attributed) == (200.0, True)
    assert (second.energy_j, second.energy_attributed) == (600.0 + 800.0, True)


@pytest.mark.parametrize("busy", [[10, 30], [0, 0], [10, None]])
def test_several_processes_of_one_replica_that_is_alone_have_it_all_and_it_is_not_attributed(
    busy: Sequence[int | None],
) -> None:
    own = (*leases(1), replace(leases(1)[0], share_mib=0, pid=101))
    meter, (job,) = DeviceMeter(), jobs(1)
    for now, at in enumerate((1000, 1100)):
        meter.sample(host(device(at, busy)), own, (job,), float(now))
    (use,) = meter.seen(job.id)
    assert (use.energy_j, use.energy_attributed) == (100.0, False)


def test_energy_of_an_earlier_daemon_goes_on() -> None:
    meter, (job,) = DeviceMeter(), jobs(1)
    meter.load(job.id, [DeviceUse(replica="actor.0", attempt=0, energy_j=50.0)])
    for now, at in enumerate((1000, 1100)):
        meter.sample(host(replace(device(at, [9]), uuid="GPU-1")), leases(1), (job,), float(now))
    assert meter.seen(job.id)[0].energy_j == 150.0
