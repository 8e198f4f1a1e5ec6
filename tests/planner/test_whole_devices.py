"""Roles that ask for whole devices: who gets which, that nobody else is there, and what is left for the others."""

import json
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.environment import resource_environment
from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Request, RoleRequest
from gpusched.model.workload import Devices
from gpusched.planner import Rules, document, plan
from gpusched.planner.capacity import device_capacities
from gpusched.planner.feasibility import request_fits
from tests.planner.building import ask, host, limits

EXACT = Rules(context_mib=1, headroom=0)


def wanting(devices: Devices, count: int = 1, **others: tuple[int, int] | tuple[int, int, float]) -> Request:
    """Return a request of `count` learners with whole devices, and of others: role=(count, min MiB)."""
    learner = RoleRequest(name="learner", count=count, memory=None, devices=devices)
    return Request(workload="test", roles=(learner, *ask(**others).roles))


def planned(request: Request, inventory: Inventory, *leases: Lease, policy: str = "balanced") -> Plan:
    return plan(request, inventory, leases, replace(EXACT, policy=policy))


def refused(request: Request, inventory: Inventory, *leases: Lease) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as raised:
        planned(request, inventory, *leases)
    return raised.value


def lease(device: int, mib: int) -> Lease:
    return Lease(device_uuid=f"GPU-{device}", share_mib=mib, job="run-3", replica="command.0")


def places(found: Plan, name: str = "learner.0") -> list[int | None]:
    (replica,) = (each for each in found.replicas if each.name == name)
    return [replica.device_index, *(share.device_index for share in replica.further)]


def test_the_lowest_equal_devices_are_given_and_the_others_are_planned_on_the_rest() -> None:
    found = planned(wanting(2, actor=(6, 10)), host(100, 100, 100, 100))
    assert places(found) == [0, 1]
    assert list(found.counts) == [1, 1, 3, 3]
    assert limits(found, "actor") == [32] * 6, "as large as on a host of two devices"
    assert [device.planned_mib for device in found.devices] == [100, 100, 99, 99]


def test_a_whole_device_is_all_that_can_be_planned_on_it_less_the_context() -> None:
    found = plan(wanting(1), host(16160, used=[200]), (), Rules())
    (replica,), (device,) = found.replicas, found.devices
    assert replica.whole
    assert (replica.share_mib, device.planned_mib) == (device.plannable_mib, device.plannable_mib)
    assert replica.limit_mib == 16160 - 200 - 323 - 450


def test_cuda_is_told_of_every_device_and_each_is_leased_as_a_whole() -> None:
    found = planned(wanting(2), host(100, 100, 100))
    env = resource_environment(found.replicas[0], "XLA_CLIENT_MEM_FRACTION")
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert env["GPUSCHED_MEMORY_LIMIT_MIB"] == "99"
    assert [(one.device_uuid, one.share_mib, one.whole) for one in leases_of_plan(found, "towers-1")] == [
        ("GPU-0", 100, True),
        ("GPU-1", 100, True),
    ]


def test_the_document_tells_the_first_device_as_ever_and_further_ones_beside() -> None:
    told = json.loads(json.dumps(document(planned(wanting(2, actor=(1, 5)), host(100, 100, 50)), "X")))
    learner, actor = told["replicas"]
    assert (learner["device_index"], learner["device_uuid"], learner["share_mib"]) == (0, "GPU-0", 100)
    assert learner["further"] == [{"device_index": 1, "device_uuid": "GPU-1", "share_mib": 100}]
    assert "further" not in actor
    assert [device["replicas"] for device in told["devices"]] == [["learner.0"], ["learner.0"], ["actor.0"]]


def test_a_device_with_a_lease_or_a_computing_process_is_not_given() -> None:
    inventory = host(100, 100, 100)
    theirs = (DeviceProcess(pid=4711, memory_mib=1), *inventory.devices[1].processes)
    rows = (inventory.devices[0], replace(inventory.devices[1], processes=theirs), inventory.devices[2])
    busy = replace(inventory, devices=rows)
    assert places(planned(wanting(1), busy, lease(0, 10))) == [2]
    error = refused(wanting(2), busy, lease(0, 10))
    assert isinstance(error, NotNow)
    assert error.message == (
        "needs 2 whole GPUs (learner); GPU 0: 90 of 100 MiB free, 10 MiB leased to run-3; "
        "GPU 1: 99 of 100 MiB free, 1 MiB held by pid 4711"
    )
    assert error.hint == "wait: 1 of 3 GPUs is whole now"


def test_nobody_is_placed_beside_a_whole_device_later() -> None:
    found = planned(wanting(1), host(100, 100))
    held = leases_of_plan(found, "towers-1")
    assert list(planned(ask(actor=(2, 9)), host(100, 100), *held).counts) == [0, 2]


def test_all_is_as_many_as_are_whole_and_leave_the_others_a_place() -> None:
    assert places(planned(wanting("all"), host(100, 100, 100))) == [0, 1, 2]
    assert places(planned(wanting("all"), host(100, 100, 100), lease(1, 10))) == [0, 2]
    found = planned(wanting("all", actor=(3, 40)), host(100, 100, 100, 100))
    assert list(found.counts) == [1, 1, 2, 1]
    assert found.request.roles[0].devices == 2
    assert "learner asked for all devices: as many as are whole and leave the others a place" in found.why
    two = planned(wanting("all", count=2), host(100, 100, 100, 100, 100))
    assert (places(two), places(two, "learner.1"), two.counts[-1]) == ([0, 1], [2, 3], 0)
    assert "learner asked for all devices: as many as are whole, the same number for each" in two.why
    assert isinstance(refused(wanting("all"), host(100), lease(0, 10)), NotNow)


def test_a_host_without_a_gpu_gives_none() -> None:
    for devices in (2, "all"):
        (replica,) = planned(wanting(devices), host(cpus=3)).replicas
        assert (replica.device_uuid, replica.further, replica.cpus) == (None, (), (0, 1, 2))


def test_more_devices_than_there_are_never_fit() -> None:
    error = refused(wanting(3), host(100, 100))
    assert isinstance(error, NeverFits)
    assert error.message == "needs 3 whole GPUs (learner), and there is GPU 0 and 1, each for one replica"


def test_others_that_have_no_place_beside_whole_devices_are_refused_for_ever() -> None:
    error = refused(wanting(1, actor=(3, 40)), host(100, 100))
    assert isinstance(error, NeverFits)
    needed = "needs 1 whole GPU (learner) + 41 MiB × 3 (actor)"
    assert error.message == f"{needed}; beside 1 whole GPU the others have no place on GPU 0 and 1"
    assert "fewer or smaller others" in error.hint
    planned(wanting(1, actor=(2, 40)), host(100, 100))
    error = refused(wanting(2, actor=(1, 1)), host(100, 100))
    assert isinstance(error, NeverFits)
    assert "beside 2 whole GPUs the others have no place on GPU 0 and 1" in error.message


def test_the_largest_devices_are_given_unless_the_others_need_them() -> None:
    assert places(planned(wanting(1, actor=(1, 9)), host(50, 100))) == [1]
    assert places(planned(wanting(1, actor=(1, 80)), host(50, 100))) == [0]


def test_one_limit_holds_on_devices_of_unlike_sizes_and_the_smallest_is_first() -> None:
    found = planned(wanting(2), host(100, 60))
    (replica,) = found.replicas
    assert (places(found), replica.limit_mib) == ([1, 0], 59)
    assert [device.planned_mib for device in found.devices] == [100, 60]


def test_a_mig_instance_is_a_device_but_no_process_gets_two() -> None:
    rows = tuple(
        Device(index=0, mig_index=i, uuid=f"MIG-{i}", name="1g", memory_total_mib=100, memory_used_mib=0)
        for i in range(2)
    )
    inventory = replace(host(), devices=rows)
    assert list(planned(wanting(1, count=2), inventory).counts) == [1, 1]
    assert list(planned(wanting("all"), inventory).counts) == [1, 0]
    assert "a process sees one MIG instance at the most" in refused(wanting(2), inventory).message


def test_max_counts_actors_on_what_the_learner_leaves() -> None:
    found = plan(wanting(1, actor=(1, 24)), host(100, 100), (), EXACT, maximise="actor")
    assert list(found.counts) == [1, 4]
    found = plan(wanting(1, actor=(1, 24)), host(100, 100, 100), (), EXACT, maximise="learner")
    assert list(found.counts) == [1, 1, 1]


def test_threads_and_cpus_are_those_near_any_of_its_devices() -> None:
    inventory = host(100, 100, cpus=8)
    rows = tuple(replace(device, cpus=(2 * i, 2 * i + 1)) for i, device in enumerate(inventory.devices))
    (replica,) = planned(wanting(2), replace(inventory, devices=rows)).replicas
    assert (replica.cpus, replica.threads) == ((0, 1, 2, 3), 4)


rows_of_devices = st.lists(st.tuples(st.integers(2, 40), st.integers(0, 12), st.booleans()), min_size=1, max_size=4)
requests = st.builds(
    lambda devices, count, actors, least, judges: wanting(
        devices, count, actor=(actors, least), judge=(judges, 1 + least // 2)
    ),
    st.sampled_from([1, 2, 3, "all"]),
    st.integers(1, 2),
    st.integers(0, 4),
    st.integers(1, 39),
    st.integers(0, 1),
)


def machine(rows: list[tuple[int, int, bool]]) -> tuple[Inventory, list[Lease]]:
    """Return a host with devices of (MiB, MiB leased, whether its compute mode lets one process in)."""
    inventory = host(*(total for total, _, _ in rows))
    devices = [
        replace(device, compute_mode="exclusive_process" if alone else "default")
        for device, (_, _, alone) in zip(inventory.devices, rows, strict=True)
    ]
    leases = [lease(i, min(mib, total)) for i, (total, mib, _) in enumerate(rows) if mib > 6]
    return replace(inventory, devices=tuple(devices)), leases


def tried(request: Request, inventory: Inventory, leases: list[Lease]) -> Plan | None:
    try:
        return planned(request, inventory, *leases)
    except DoesNotFit:
        return None


@settings(max_examples=150)
@given(requests, rows_of_devices)
def test_whole_devices_are_exclusive_and_no_device_is_overcommitted(
    request: Request, rows: list[tuple[int, int, bool]]
) -> None:
    inventory, leases = machine(rows)
    found = tried(request, inventory, leases)
    assert (found is not None) == request_fits(request, device_capacities(inventory, leases, 0, None), 1, "balanced")
    if found is None:
        return
    shares = dict.fromkeys((device.uuid for device in found.devices), 0)
    for replica in found.replicas:
        if replica.device_uuid is not None:
            shares[replica.device_uuid] += replica.share_mib
        for share in replica.further:
            assert replica.share_mib <= share.share_mib
            shares[share.device_uuid] += share.share_mib
    for device in found.devices:
        assert shares[device.uuid] == device.planned_mib <= device.plannable_mib
        if any(name.startswith("learner.") for name in device.replicas):
            assert len(device.replicas) == 1
            assert (device.leased_mib, device.planned_mib) == (0, device.plannable_mib)


@settings(max_examples=200)
@given(requests, rows_of_devices)
def test_it_fits_exactly_when_the_rest_fits_beside_some_choice_of_whole_devices(
    request: Request, rows: list[tuple[int, int, bool]]
) -> None:
    inventory, leases = machine(rows)
    learner, *others = request.roles
    number = (learner.devices if isinstance(learner.devices, int) else 1) * learner.count
    free = {device.uuid for device in inventory.devices} - {one.device_uuid for one in leases}
    rest = replace(request, roles=tuple(others))
    placed = any(role.count for role in others)
    expected = False
    for taken in combinations(sorted(free), number):
        left = frozenset(device.uuid for device in inventory.devices) - set(taken)
        expected |= not placed or request_fits(rest, device_capacities(inventory, leases, 0, left), 1, "balanced")
    assert (tried(request, inventory, leases) is not None) == expected


@settings(max_examples=100)
@given(requests, rows_of_devices, st.integers(0, 3))
def test_what_fits_still_fits_when_a_lease_ends(request: Request, rows: list[tuple[int, int, bool]], ends: int) -> None:
    inventory, leases = machine(rows)
    if tried(request, inventory, leases) is not None:
        left = [one for one in leases if one.device_uuid != f"GPU-{ends}"]
        assert tried(request, inventory, left) is not None
