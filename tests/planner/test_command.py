"""One command: whole devices, an amount, or a part; the textbook cases, and what holds for every host."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.environment import resource_environment
from gpusched.errors import DoesNotFit, NeverFits, NotNow, UsageError
from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import ComputeMode, Device, DeviceProcess, Inventory
from gpusched.model.job import CommandRequest
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan
from gpusched.planner import Rules
from gpusched.planner.capacity import device_capacities
from gpusched.planner.command import command_fits, plan_command, roomiest
from tests.planner.building import host

EXACT = Rules(context_mib=1, headroom=0)


def planned(need: CommandRequest, inventory: Inventory, *leases: Lease, rules: Rules = EXACT) -> Plan:
    return plan_command(need, inventory, leases, rules, "run")


def whole(number: int) -> CommandRequest:
    return CommandRequest(devices=number)


def part(fraction: float) -> CommandRequest:
    return CommandRequest(fraction=round(fraction * 10_000))


def memory(mib: int) -> CommandRequest:
    return CommandRequest(memory_mib=mib)


def lease(device: int, share: int, job: str = "run-3", **fields: object) -> Lease:
    return replace(Lease(device_uuid=f"GPU-{device}", share_mib=share, job=job, replica="command.0"), **fields)


def busy(inventory: Inventory, device: int, *processes: DeviceProcess) -> Inventory:
    devices = list(inventory.devices)
    devices[device] = replace(devices[device], processes=processes)
    return replace(inventory, devices=tuple(devices))


def places(found: Plan) -> list[int | None]:
    (replica,) = found.replicas
    return [replica.device_index, *(share.device_index for share in replica.further)]


def test_two_programs_at_two_fifths_of_one_device_run_and_a_third_waits() -> None:
    inventory, rules = host(16160), Rules()
    first = planned(part(0.4), inventory, rules=rules)
    second = planned(part(0.4), inventory, *leases_of_plan(first, "run-1"), rules=rules)
    held = (*leases_of_plan(first, "run-1"), *leases_of_plan(second, "run-2"))
    assert first.replicas[0].share_mib == 15837 * 4 // 10
    assert first.replicas[0].limit_mib == 15837 * 4 // 10 - 450
    with pytest.raises(NotNow, match=r"needs 0.4 of one GPU; GPU 0: 3169 of 15837 MiB free, 6334 MiB leased to run-1"):
        planned(part(0.4), inventory, *held, rules=rules)


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.3333, 0.3333, 0.3333), (0.9, 0.1), (1.0,)])
def test_parts_that_add_up_to_one_fit_on_one_device(fractions: tuple[float, ...]) -> None:
    held: tuple[Lease, ...] = ()
    for number, fraction in enumerate(fractions):
        held += leases_of_plan(planned(part(fraction), host(16161), *held, rules=Rules()), f"run-{number}")
    assert sum(one.share_mib for one in held) <= 15838


def test_a_driver_that_takes_a_few_mib_keeps_no_second_half_waiting() -> None:
    first = planned(part(0.5), host(16160), rules=Rules())
    second = planned(part(0.5), host(16160, used=[40]), *leases_of_plan(first, "run-1"), rules=Rules())
    assert second.replicas[0].share_mib == 15837 - 40 - 7918
    with pytest.raises(NotNow):
        planned(part(0.51), host(16160, used=[40]), *leases_of_plan(first, "run-1"), rules=Rules())


def test_a_part_that_holds_no_more_than_the_context_never_fits_and_the_hint_does() -> None:
    with pytest.raises(NeverFits) as raised:
        planned(part(0.01), host(16160), rules=Rules())
    assert "0.01 of it is 158 MiB, and the context alone takes 450 MiB" in raised.value.message
    (least,) = re.findall(r"at least (0\.\d+)", raised.value.hint)
    planned(part(float(least)), host(16160), rules=Rules())


def test_an_amount_is_a_limit_with_the_context_on_top() -> None:
    (replica,) = planned(memory(6144), host(16160), rules=Rules()).replicas
    assert (replica.limit_mib, replica.context_mib, replica.share_mib) == (6144, 450, 6594)


def test_an_amount_that_no_device_has_never_fits_and_the_hint_does() -> None:
    with pytest.raises(NeverFits) as raised:
        planned(memory(200), host(100, 150))
    assert raised.value.message == (
        "needs 201 MiB of one GPU, 200 + 1 MiB of context; the most that can be planned on one device is "
        "150 of 150 MiB on GPU 1"
    )
    assert raised.value.hint == "ask for at most 149 MiB"
    planned(memory(149), host(100, 150))


def test_whole_devices_are_seen_by_the_command_and_planned_to_the_last_mib() -> None:
    found = planned(whole(2), host(100, 100, 100))
    assert list(found.counts) == [1, 1, 0]
    assert [device.replicas for device in found.devices] == [("command.0",), ("command.0",), ()]
    assert [device.planned_mib for device in found.devices] == [100, 100, 0]
    environment = resource_environment(found.replicas[0], "XLA_CLIENT_MEM_FRACTION")
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert sum(one.share_mib for one in leases_of_plan(found, "run-1")) == 200


@pytest.mark.parametrize(
    ("need", "limit", "share"),
    [(memory(60), 20, 63), (part(0.5), 15, 50), (part(0.52), 16, 52), (whole(1), 32, 100)],
)
def test_processes_that_keep_to_their_part_of_the_limit_fit_the_share_with_their_contexts(
    need: CommandRequest, limit: int, share: int
) -> None:
    found = planned(replace(need, processes=3), host(100))

    (replica,) = found.replicas
    environment = resource_environment(replica, "XLA_CLIENT_MEM_FRACTION")
    assert (int(environment["GPUSCHED_MEMORY_LIMIT_MIB"]), replica.share_mib) == (limit, share)
    assert 3 * (limit + EXACT.context_mib) <= replica.share_mib < 3 * (limit + 1 + EXACT.context_mib)
    assert 3 * round(float(environment["GPUSCHED_MEMORY_FRACTION"]) * 10_000) <= replica.limit_mib * 100
    assert environment["XLA_CLIENT_MEM_FRACTION"] == environment["GPUSCHED_MEMORY_FRACTION"]
    assert int(environment["CUPY_GPU_MEMORY_LIMIT"]) == limit << 20
    assert f"3 processes on a device at once: {limit} MiB limit + 1 MiB context for each" in found.why


def test_processes_for_whose_contexts_there_is_no_room_are_refused() -> None:
    planned(replace(part(0.1), processes=5), host(100))
    with pytest.raises(NeverFits, match="the contexts of 6 processes take 6 MiB"):
        planned(replace(part(0.1), processes=6), host(100))
    with pytest.raises(NeverFits, match=r"needs 103 MiB of one GPU, 97 \+ 6 MiB of context") as raised:
        planned(replace(memory(97), processes=6), host(100))
    assert raised.value.hint == "ask for at most 94 MiB"
    with pytest.raises(NeverFits, match="at most 0 can be had at once"):
        planned(replace(whole(1), processes=2), host(100, mode="exclusive_process"))


def test_one_limit_holds_for_each_of_several_unlike_devices() -> None:
    found = planned(whole(2), host(100, 60, 80))
    (replica,) = found.replicas
    assert places(found) == [2, 0]
    assert (replica.limit_mib, replica.fraction) == (79, 7900)
    assert [device.planned_mib for device in found.devices] == [100, 0, 80]


@pytest.mark.parametrize("kind", ["C", "C+G"])
def test_a_device_on_which_others_compute_is_not_whole(kind: str) -> None:
    inventory = busy(host(100, 100, used=[1]), 0, DeviceProcess(pid=4711, user="bob", memory_mib=1, kind=kind))
    assert places(planned(whole(1), inventory)) == [1]
    with pytest.raises(
        NotNow, match="needs 2 whole GPUs; GPU 0: 99 of 100 MiB free, 1 MiB held by pid 4711 of user bob"
    ):
        planned(whole(2), inventory)


def test_a_desktop_is_taken_off_a_whole_device() -> None:
    inventory = busy(host(100, used=[20]), 0, DeviceProcess(pid=1, memory_mib=20, kind="G"))
    assert planned(whole(1), inventory).devices[0].planned_mib == 80


def test_what_others_leave_of_a_whole_device_is_still_its_holders() -> None:
    before, after = busy(host(1000, used=[300]), 0, DeviceProcess(pid=4, memory_mib=300, kind="G")), host(1000)
    mine = leases_of_plan(planned(whole(1), before), "run-1")
    assert [one.share_mib for one in mine] == [700]
    with pytest.raises(NotNow, match=r"0 of 1000 MiB free, 700 MiB leased to run-1 \(as a whole GPU\)"):
        planned(memory(10), after, *mine)
    (device,) = device_capacities(after, mine, 0, None)
    assert (device.leased_mib, device.plannable_mib) == (1000, 0)
    assert device_capacities(before, mine, 0, None)[0].leased_mib == 700


def test_a_device_of_which_more_than_half_is_used_by_nobody_in_sight_is_not_whole() -> None:
    assert planned(whole(1), host(100, used=[50])).devices[0].planned_mib == 50
    with pytest.raises(NotNow, match="51 MiB held by processes that cannot be seen from here"):
        planned(whole(1), host(100, used=[51]))


def test_a_device_with_a_lease_is_not_whole_and_its_holder_is_named() -> None:
    other = lease(1, 10, job="snake-4", user="alice")
    with pytest.raises(NotNow) as raised:
        planned(whole(1), host(100, 100), lease(0, 40), other)
    assert raised.value.message == (
        "needs 1 whole GPU; GPU 0: 60 of 100 MiB free, 40 MiB leased to run-3; "
        "GPU 1: 90 of 100 MiB free, 10 MiB leased to alice/snake-4"
    )
    assert raised.value.hint == "wait, or ask for at most --memory 89MiB"
    planned(memory(89), host(100, 100), lease(0, 40), other)


def test_more_devices_than_there_are_never_fit() -> None:
    with pytest.raises(
        NeverFits, match="needs 3 whole GPUs, and of GPU 0 and 1 at most 2 can be had at once"
    ) as raised:
        planned(whole(3), host(100, 100))
    assert raised.value.hint == "ask for --num-gpus 2 at most"


def test_when_fewer_devices_are_free_the_hint_says_how_many() -> None:
    with pytest.raises(NotNow) as raised:
        planned(whole(3), host(100, 100, 100), lease(1, 10))
    assert raised.value.hint == "wait, or ask for --num-gpus 2 at most"


def test_a_process_gets_one_mig_instance_at_most() -> None:
    instances = tuple(
        Device(index=0, mig_index=i, uuid=f"MIG-{i}", name="1g", memory_total_mib=100, memory_used_mib=0)
        for i in range(2)
    )
    inventory = replace(host(), devices=instances)
    assert places(planned(whole(1), inventory)) == [0]
    with pytest.raises(NeverFits, match="a process sees one MIG instance at the most"):
        planned(whole(2), inventory)


def test_no_device_is_asked_for_with_0_and_a_host_without_any_says_so() -> None:
    (replica,) = planned(whole(0), host(100, cpus=3)).replicas
    assert (replica.device_uuid, replica.limit_mib, replica.cpus) == (None, 0, (0, 1, 2))
    assert list(planned(whole(0), host()).counts) == []
    with pytest.raises(NeverFits, match="has no GPU") as raised:
        planned(whole(1), host())
    assert "--num-gpus 0" in raised.value.hint


def test_a_piece_goes_where_no_device_stops_being_whole_and_the_least_is_left() -> None:
    inventory = host(100, 100, 100)
    assert places(planned(memory(9), inventory)) == [0]
    assert places(planned(memory(9), inventory, lease(1, 10))) == [1]
    assert places(planned(memory(9), inventory, lease(1, 10), lease(2, 50))) == [2]
    assert places(planned(memory(59), inventory, lease(1, 50), lease(2, 50))) == [0]


def test_an_exclusive_device_takes_one_command_at_a_time() -> None:
    inventory = host(100, mode="exclusive_process")
    planned(part(0.4), inventory)
    with pytest.raises(NotNow, match="EXCLUSIVE_PROCESS"):
        planned(part(0.4), inventory, lease(0, 40))


def test_devices_that_take_nothing_are_told_of() -> None:
    inventory = host(100)
    lost = replace(inventory, devices=(replace(inventory.devices[0], health="lost"),))
    with pytest.raises(NeverFits, match="no device takes a command: GPU 0 takes no replica: it is lost"):
        planned(whole(1), lost)


def test_a_need_says_exactly_one_thing() -> None:
    with pytest.raises(UsageError):
        planned(CommandRequest(), host(100))
    with pytest.raises(UsageError):
        planned(CommandRequest(devices=1, memory_mib=5), host(100))


needs = st.builds(
    lambda need, processes: replace(need, processes=processes),
    st.one_of(
        st.integers(0, 4).map(whole),
        st.integers(1, 120).map(memory),
        st.integers(1, 10_000).map(lambda share: CommandRequest(fraction=share)),
    ),
    st.sampled_from([1, 1, 2, 3]),
)
hosts = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 60)), min_size=1, max_size=4)
held_amounts = st.lists(st.integers(0, 60), max_size=4)


def tried(need: CommandRequest, machine: Inventory, leases: list[Lease]) -> Plan | None:
    try:
        return planned(need, machine, *leases)
    except DoesNotFit:
        return None


@settings(max_examples=300)
@given(needs, hosts, held_amounts)
def test_no_device_is_overcommitted_and_a_plan_is_reproducible(
    need: CommandRequest, devices: list[tuple[int, int]], amounts: list[int]
) -> None:
    machine = host(*(total for total, _ in devices), used=[used for _, used in devices])
    leases = [lease(i, mib) for i, mib in enumerate(amounts[: len(devices)]) if mib]
    found = tried(need, machine, leases)
    assert found == tried(need, machine, leases)
    if found is None:
        return
    (replica,) = found.replicas
    shares = {share.device_uuid: share.share_mib for share in replica.further}
    if replica.device_uuid is not None:
        shares[replica.device_uuid] = replica.share_mib
        assert replica.limit_mib > 0
    for device in found.devices:
        assert device.planned_mib == shares.pop(device.uuid, 0) <= device.plannable_mib
        assert bool(device.planned_mib) == (device.replicas == ("command.0",))
    assert not shares
    assert sum(found.counts) == (need.devices if need.devices is not None else 1)


@settings(max_examples=200)
@given(needs, hosts, held_amounts, st.lists(st.sampled_from(["default", "exclusive_process"]), min_size=4, max_size=4))
def test_a_command_on_one_device_fits_on_the_roomiest_of_each_kind_if_it_does_on_any(
    need: CommandRequest, devices: list[tuple[int, int]], amounts: list[int], modes: list[ComputeMode]
) -> None:
    inventory = host(*(total for total, _ in devices), used=[used for _, used in devices])
    cards = (replace(card, compute_mode=mode) for card, mode in zip(inventory.devices, modes, strict=False))
    inventory = replace(inventory, devices=tuple(cards))
    leases = [lease(i, mib) for i, mib in enumerate(amounts[: len(devices)]) if mib]
    for one in (need, replace(need, devices=need.devices and 1)):
        if one.devices in (None, 1):
            every = device_capacities(inventory, leases, 0, None)
            few = roomiest(every)
            assert command_fits(one, few, 1) == command_fits(one, every, 1)
            emptied = [[capacity.emptied for capacity in some] for some in (few, every)]
            assert command_fits(one, emptied[0], 1) == command_fits(one, emptied[1], 1)


@settings(max_examples=200)
@given(needs, hosts, held_amounts, st.integers(0, 3))
def test_what_fits_still_fits_when_something_ends(
    need: CommandRequest, devices: list[tuple[int, int]], amounts: list[int], ends: int
) -> None:
    totals, used = [total for total, _ in devices], [used for _, used in devices]
    leases = [lease(i, mib) for i, mib in enumerate(amounts[: len(devices)]) if mib]
    if tried(need, host(*totals, used=used), leases) is not None:
        left = [one for one in leases if one.device_uuid != f"GPU-{ends}"]
        freed = [0 if i == ends else mib for i, mib in enumerate(used)]
        assert tried(need, host(*totals, used=freed), left) is not None


@pytest.mark.parametrize(
    ("need", "devices", "cpus", "threads"),
    [
        (part(0.25), 1, 32, 8),
        (part(0.25), 4, 32, 2),
        (part(0.25), 1, 2, 1),
        (part(1), 4, 32, 8),
        (memory(50), 1, 32, 16),
        (whole(1), 1, 32, 32),
        (whole(1), 4, 32, 8),
        (whole(4), 4, 32, 32),
        (whole(0), 4, 32, 32),
    ],
)
def test_a_command_computes_with_its_part_of_the_cpus(
    need: CommandRequest, devices: int, cpus: int, threads: int
) -> None:
    """Of the CPUs that are near the device, and near others as well; it may run on each of them."""
    (replica,) = planned(need, host(*[102] * devices, cpus=cpus)).replicas
    assert (replica.threads, len(replica.cpus)) == (threads, cpus)


def test_the_cpus_near_one_device_alone_are_that_ones() -> None:
    inventory = host(102, 102, 102, cpus=12)
    near = ((0, 1), tuple(range(2, 12)), tuple(range(2, 12)))
    rows = tuple(replace(device, cpus=cpus) for device, cpus in zip(inventory.devices, near, strict=True))

    def threads(need: CommandRequest, device: int) -> int:
        rules = replace(EXACT, only=frozenset({f"GPU-{device}"}))
        return planned(need, replace(inventory, devices=rows), rules=rules).replicas[0].threads

    assert [threads(whole(1), device) for device in range(3)] == [2, 5, 5]
    assert [threads(part(0.5), device) for device in range(3)] == [1, 2, 2]


def test_all_parts_of_a_host_have_no_more_threads_than_it_has_cpus() -> None:
    inventory = host(*[1000] * 4, cpus=16)
    leases: list[Lease] = []
    threads = 0
    for number in range(16):
        found = planned(part(0.25), inventory, *leases)
        leases += leases_of_plan(found, f"run-{number}")
        threads += found.replicas[0].threads
    assert threads == 16


@pytest.mark.parametrize(
    ("inventory", "problem"),
    [
        (host(), "has no GPU"),
        (host(1000, mode="prohibited"), "no device takes a command: GPU 0 takes no replica"),
    ],
    ids=["no GPU", "none that takes a command"],
)
def test_where_no_device_takes_a_command_that_is_why_auto_is_refused(inventory: Inventory, problem: str) -> None:
    with pytest.raises(NeverFits, match=problem):
        plan_command(CommandRequest(first_mib=0), inventory, (), Rules(), "run")
