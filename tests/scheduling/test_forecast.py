"""The head's start as a distribution, and what delays it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.scheduling.forecast import (
    BY_STRATA,
    FUTURES,
    DeviceForecast,
    DeviceWait,
    Tenant,
    WholeForecast,
    drawn_ends,
)

NOW = 1000.0


def at(*seconds: float) -> tuple[float, ...]:
    """Ends that go around `seconds` from now."""
    return tuple(NOW + seconds[i % len(seconds)] for i in range(FUTURES))


def wait(lacks: int, *tenants: tuple[tuple[float, ...], int]) -> DeviceWait:
    return DeviceWait(lacks, tuple(Tenant(*one) for one in tenants))


def test_a_head_starts_when_enough_of_one_device_is_free() -> None:
    devices = {0: wait(30, (at(100), 20), (at(50), 20)), 1: wait(10, (at(80), 40))}
    assert DeviceForecast(devices, 1, NOW).starts == at(80)
    assert DeviceForecast(devices, 2, NOW).starts == at(100)
    assert DeviceForecast({0: devices[0]}, 1, NOW).starts == at(100)


def test_what_never_ends_or_is_not_there_is_never_a_start() -> None:
    assert set(DeviceForecast({0: wait(30, ((math.inf,) * FUTURES, 40))}, 1, NOW).starts) == {math.inf}
    assert set(DeviceForecast({0: wait(0)}, 2, NOW).starts) == {math.inf}
    nothing = DeviceForecast({0: wait(30, ((math.inf,) * FUTURES, 40))}, 1, NOW)
    assert nothing.in_time((1.0,)) == 0


def test_a_job_is_in_time_in_the_part_of_the_futures_in_which_it_ends_before_the_head_starts() -> None:
    forecast = DeviceForecast({0: wait(40, (at(100, 200), 40))}, 1, NOW)
    assert forecast.expected == NOW + 150
    assert forecast.in_time((50.0,)) == 1
    assert forecast.in_time((150.0,)) == 0.5
    assert forecast.in_time((50.0, 5000.0)) == 0.5


def started_with(devices: dict[int, DeviceWait], amounts: dict[int, int], job: tuple[float, ...]) -> tuple[float, ...]:
    """Return the starts of a head of one device beside a job that was admitted."""
    forecast = DeviceForecast(devices, 1, NOW)
    forecast.admit(amounts, job)
    return forecast.starts


def test_a_job_that_was_admitted_delays_the_head_where_it_outlasts_its_start_on_its_device() -> None:
    devices = {0: wait(40, (at(100), 40))}
    assert started_with(devices, {0: 10}, at(50)) == at(100)
    assert started_with(devices, {0: 10}, at(150)) == at(150)
    assert started_with(devices, {}, at(5000)) == at(100)


def test_beside_room_that_is_left_over_a_job_may_stay() -> None:
    devices = {0: wait(30, (at(100), 40))}
    assert started_with(devices, {0: 10}, at(math.inf)) == at(100)
    assert started_with(devices, {0: 11}, at(math.inf)) == at(math.inf)


def test_a_job_on_a_device_that_the_head_will_not_be_on_does_not_delay_it() -> None:
    devices = {0: wait(40, (at(100), 40)), 1: wait(40, (at(900), 40))}
    assert started_with(devices, {1: 10}, at(5000)) == at(100)
    assert started_with(devices, {0: 10}, at(5000)) == at(900)


def test_what_a_head_is_expected_beside_is_what_it_is_expected_once_the_job_was_admitted() -> None:
    forecast = DeviceForecast({0: wait(40, (at(100), 40)), 1: wait(40, (at(900), 40))}, 1, NOW)
    assert forecast.expected_beside({0: 10}, at(500)) == NOW + 500
    assert forecast.expected_beside({0: 10}, at(5000)) == NOW + 900
    assert forecast.expected_beside({}, at(5000)) == forecast.expected == NOW + 100


ends = st.lists(st.floats(0, 1000), min_size=FUTURES, max_size=FUTURES).map(
    lambda each: tuple(NOW + one for one in each)
)
tenants = st.lists(st.builds(Tenant, ends, st.integers(1, 50)), max_size=4).map(tuple)
device = st.builds(DeviceWait, st.integers(0, 80), tenants)


@given(st.dictionaries(st.integers(0, 2), device, min_size=1), st.integers(1, 3), st.integers(1, 60), ends)
def test_no_job_that_is_admitted_makes_a_start_earlier(
    devices: dict[int, DeviceWait], number: int, mib: int, later: tuple[float, ...]
) -> None:
    forecast, mine = DeviceForecast(devices, number, NOW), {0: mib} if 0 in devices else {}
    before = forecast.starts
    forecast.admit(mine, later)
    assert all(new >= old for new, old in zip(forecast.starts, before, strict=True))


def test_a_head_with_roles_starts_later_for_who_has_passed_it_and_is_unknown_once_that_takes_too_long() -> None:
    answers = iter([at(100), at(300)])
    forecast = WholeForecast(lambda: next(answers), 2, NOW)
    assert forecast.in_time((200.0,)) == 0
    forecast.admit({}, at(5000))  # it is on none of the head's devices
    assert forecast.starts == at(100)
    forecast.admit({0: 5}, at(5000))
    assert (forecast.starts, forecast.in_time((200.0,))) == (at(300), 1)
    forecast.admit({0: 5}, at(5000))
    assert (forecast.starts, forecast.in_time((200.0,))) == (at(300), 0)


def test_a_head_that_may_never_start_is_expected_when_it_starts_if_it_does() -> None:
    forecast = DeviceForecast({0: wait(40, (at(100, math.inf, math.inf), 40))}, 1, NOW)
    assert forecast.expected == NOW + 100
    assert DeviceForecast({0: wait(40, (at(math.inf), 40))}, 1, NOW).expected == math.inf


@pytest.mark.parametrize("one_in", [1, 3, 6])
def test_the_ends_in_some_of_the_futures_are_spread_over_the_whole_distribution(one_in: int) -> None:
    left = tuple(float(i) for i in range(FUTURES))
    for job in map(str, range(50)):
        some = sorted(drawn_ends(job, left, 0.0)[::one_in])
        size = max(6, one_in)  # one of each stratum of as many quantiles, two where only one in three is taken
        for begin in range(0, FUTURES, size):
            assert sum(begin <= end < begin + size for end in some) == size // one_in


@pytest.mark.parametrize("job", ["run-1", "run-2", "snake-7[3]"])
def test_the_first_few_futures_in_the_order_of_playing_are_spread_over_the_distribution(job: str) -> None:
    ends = drawn_ends(job, tuple(float(second) for second in range(FUTURES)), 0.0)
    assert sorted(BY_STRATA) == list(range(FUTURES))
    for first in range(0, FUTURES, 4):
        assert sorted(ends[future] // 6 for future in BY_STRATA[first : first + 4]) == [0, 1, 2, 3]


def test_the_ends_of_a_job_are_its_quantiles_in_an_order_that_its_id_decides() -> None:
    left = tuple(float(i) for i in range(48))
    assert sorted(drawn_ends("run-1", left, NOW)) == [NOW + 2 * i + 1 for i in range(FUTURES)]
    assert drawn_ends("run-1", left, NOW) == drawn_ends("run-1", left, NOW)
    assert drawn_ends("run-1", left, NOW) != drawn_ends("run-2", left, NOW)
