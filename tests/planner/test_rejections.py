"""Every kind of "no": never or not now, what is missing in numbers, and what would fit, which then does fit."""

import re

import pytest
from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow, UsageError
from gpusched.model.device import DeviceProcess
from gpusched.model.lease import Lease
from gpusched.model.plan import Request
from gpusched.planner import Rules, plan
from tests.planner.building import ask, host

EXACT = Rules(context_mib=1, headroom=0)


def refused(request: Request, *totals: int, used: list[int] | None = None, policy: str = "balanced") -> DoesNotFit:
    with pytest.raises(DoesNotFit) as raised:
        plan(request, host(*totals, used=used or []), (), replace(EXACT, policy=policy))
    return raised.value


def test_too_many_actors_says_how_many_fit_and_that_many_fit() -> None:
    error = refused(ask(learner=(1, 10, 0.5), actor=(30, 9)), 100, 100)
    assert isinstance(error, NeverFits)
    assert "1 learner of 10 MiB and 30 actors of 9 MiB can never fit on GPU 0 and 1" in error.message
    assert "they take 311 MiB, and 200 MiB can be planned; 18 of 30 actors fit, 12 are missing" in error.message
    assert "at most 18 actors" in error.hint
    plan(ask(learner=(1, 10, 0.5), actor=(18, 9)), host(100, 100), (), EXACT)


def test_too_large_actors_says_what_minimum_would_fit_and_it_fits() -> None:
    error = refused(ask(learner=(1, 10, 0.5), actor=(4, 60)), 100, 100)
    (least,) = re.findall(r"at most (\d+) MiB for each actor", error.hint)
    plan(ask(learner=(1, 10, 0.5), actor=(4, int(least))), host(100, 100), (), EXACT)
    refused(ask(learner=(1, 10, 0.5), actor=(4, int(least) + 1)), 100, 100)


def test_one_replica_larger_than_any_device_is_named() -> None:
    error = refused(ask(learner=(1, 200, 0.5), actor=(2, 10)), 100, 120)
    assert isinstance(error, NeverFits)
    assert "one learner takes 200 + 1 = 201 MiB" in error.message
    assert "the most that can be planned on one device is 120 of 120 MiB on GPU 1" in error.message


def test_memory_held_by_others_is_not_now() -> None:
    inventory = host(100, 100, used=[90, 40])
    process = DeviceProcess(pid=4711, user="alice", command="python", memory_mib=90)
    inventory = replace(inventory, devices=(replace(inventory.devices[0], processes=(process,)), inventory.devices[1]))
    held = Lease(device_uuid="GPU-1", share_mib=20, job="snake-1", replica="actor.0")
    with pytest.raises(NotNow) as raised:
        plan(ask(actor=(10, 9)), inventory, [held], EXACT)
    assert "it would on idle devices, but 20 MiB are leased and 130 MiB are held by others" in raised.value.message
    assert "pid 4711 (alice, python) holds 90 MiB on GPU 0" in raised.value.hint
    assert "at most 5 actors" in raised.value.hint


def test_an_occupied_exclusive_device_is_not_now() -> None:
    inventory = host(100, mode="exclusive_process")
    busy = replace(inventory.devices[0], processes=(DeviceProcess(pid=9),))
    with pytest.raises(NotNow, match="compute mode lets one process in, and there is one"):
        plan(ask(actor=(1, 9)), replace(inventory, devices=(busy,)), (), EXACT)


def test_two_processes_on_an_exclusive_device_is_never() -> None:
    with pytest.raises(NeverFits, match="1 of 2 actors fit"):
        plan(ask(actor=(2, 9)), host(100, mode="exclusive_process"), (), EXACT)


def test_a_policy_that_is_in_the_way_is_named() -> None:
    error = refused(ask(actor=(3, 10)), 100, 100, policy="exclusive")
    assert "with policy exclusive" in error.message
    assert error.hint == "ask for at most 2 actors, or for policy balanced"


def test_no_usable_device_says_why_for_each() -> None:
    inventory = host(100)
    lost = replace(inventory, devices=(replace(inventory.devices[0], health="lost"),))
    with pytest.raises(NeverFits, match="no device takes a replica: GPU 0 takes no replica: it is lost"):
        plan(ask(actor=(1, 1)), lost, (), EXACT)


def test_maximise_on_a_full_host_is_refused() -> None:
    with pytest.raises(NotNow):
        plan(ask(learner=(1, 10, 0.5), actor=(5, 10)), host(100, used=[85]), (), EXACT, maximise="actor")


def test_one_process_is_spoken_of_as_one() -> None:
    message = refused(ask(actor=(1, 300)), 100).message
    assert message.startswith("1 actor of 300 MiB can never fit")
    with pytest.raises(NotNow, match="1 actor of 9 MiB does not fit on GPU 0 now"):
        plan(ask(actor=(1, 9)), host(100, used=[95]), (), EXACT)
    assert "1 of 2 actors fits, 1 is missing" in refused(ask(actor=(2, 60)), 100).message


def test_a_compute_mode_in_the_way_is_named_with_the_way_out() -> None:
    with pytest.raises(NeverFits) as raised:
        plan(ask(actor=(3, 9)), host(100, 100, mode="exclusive_process"), (), EXACT)
    assert "GPU 0 and 1: EXCLUSIVE_PROCESS lets one process in" in raised.value.hint
    assert "`nvidia-smi -c DEFAULT` lets them share" in raised.value.hint


def test_what_would_take_too_long_to_search_is_refused_not_searched_for_ever() -> None:
    roles = {"a": (60, 800), "b": (50, 1500), "c": (40, 2500), "d": (30, 3000), "e": (20, 6000)}
    with pytest.raises(UsageError, match="replicas of different sizes can be combined in too many ways") as raised:
        plan(ask(**roles), host(*[64_000] * 8), (), EXACT)
    assert "the same memory" in raised.value.hint


def test_a_sum_that_is_too_large_is_never_even_when_nobody_can_search_for_what_would_fit() -> None:
    error = refused(ask(a=(250, 1000), b=(50, 2000), c=(40, 3000), d=(11, 9000)), *[64_000] * 8)
    assert isinstance(error, NeverFits)
    assert error.hint == "take a machine with more or larger devices"
