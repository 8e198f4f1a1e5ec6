"""What may be planned of a device: leases, foreign processes, reserves, compute modes, devices that take nothing."""

import pytest
from msgspec.structs import replace

from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan
from gpusched.planner import Rules, plan
from tests.planner.building import ask, host

EXACT = Rules(context_mib=1, headroom=0)


def changed(inventory: Inventory, **fields: object) -> Inventory:
    """Return the host with its first device changed."""
    return replace(inventory, devices=(replace(inventory.devices[0], **fields), *inventory.devices[1:]))


def plannable(inventory: Inventory, *leases: Lease, rules: Rules = EXACT) -> int:
    return plan(ask(actor=(1, 1)), inventory, leases, rules).devices[0].plannable_mib


def lease(share: int, pid: int | None = None, device: int = 0) -> Lease:
    return Lease(device_uuid=f"GPU-{device}", share_mib=share, job="snake-1", replica="actor.0", pid=pid)


def test_reserve_headroom_leases_and_foreign_memory_all_come_off() -> None:
    inventory = changed(host(10_000), memory_reserved_mib=400, memory_used_mib=1000)
    assert plannable(inventory, lease(2000), rules=Rules(headroom=200)) == 10_000 - 400 - 200 - 1000 - 2000


def test_what_our_own_processes_use_is_not_counted_twice() -> None:
    used = changed(host(1000), memory_used_mib=350, processes=(DeviceProcess(pid=7, memory_mib=250),))
    assert plannable(used, lease(300, pid=7)) == 1000 - 300 - (350 - 250)


def test_an_own_process_whose_memory_is_unknown_counts_with_its_share() -> None:
    used = changed(host(1000), memory_used_mib=350, processes=(DeviceProcess(pid=7, memory_mib=None),))
    assert plannable(used, lease(300, pid=7)) == 1000 - 300 - 50


def test_what_a_replica_uses_beyond_its_share_cannot_be_planned_either() -> None:
    processes = (DeviceProcess(pid=7, memory_mib=450), DeviceProcess(pid=8, memory_mib=100))
    used = changed(host(1000), memory_used_mib=550, processes=processes)
    further = replace(lease(300, pid=8), share_mib=0)
    found = plan(ask(actor=(1, 1)), used, (lease(300, pid=7), further), EXACT)
    assert found.devices[0].plannable_mib == 1000 - 300 - (450 + 100 - 300)
    assert not any("cannot be seen" in line for line in found.warnings)


def test_a_lease_hides_no_more_of_another_users_processes_than_its_shares() -> None:
    alice = replace(lease(1), user="alice", replica="")
    used = changed(host(1000), memory_used_mib=800, processes=(DeviceProcess(pid=7, memory_mib=800),))
    assert plannable(used, alice, replace(alice, share_mib=0, pid=7)) == 1000 - 800


def test_processes_of_which_only_the_job_is_known_use_what_its_replicas_leave() -> None:
    mine = [replace(lease(300), replica=f"actor.{number}") for number in range(3)]
    mine[0] = replace(mine[0], pid=7)
    loose = [replace(lease(0, pid=pid), replica="") for pid in (8, 9)]
    processes = (*(DeviceProcess(pid=pid, memory_mib=250) for pid in (8, 9)), DeviceProcess(pid=7, memory_mib=280))
    used = changed(host(2000), memory_used_mib=780, processes=processes)
    assert plannable(used, *mine, *loose) == 2000 - 900
    greedy = replace(
        used.devices[0], memory_used_mib=1080, processes=(*processes[:2], replace(processes[2], memory_mib=580))
    )
    assert plannable(replace(used, devices=(greedy,)), *mine, *loose) == 2000 - 900 - (580 - 300)
    untold = replace(used.devices[0], processes=(replace(processes[0], memory_mib=None), *processes[1:]))
    assert plannable(replace(used, devices=(untold,)), *mine, *loose) == 2000 - 900


def test_what_is_used_beyond_a_share_counts_even_if_the_total_used_is_stale() -> None:
    used = changed(host(1000), memory_used_mib=0, processes=(DeviceProcess(pid=7, memory_mib=450),))
    assert plannable(used, lease(300, pid=7)) == 1000 - 450


def test_foreign_processes_count_even_if_the_total_used_is_stale() -> None:
    used = changed(host(1000), memory_used_mib=0, processes=(DeviceProcess(pid=9, memory_mib=400),))
    assert plannable(used) == 600


def test_unknown_use_counts_as_none() -> None:
    assert plannable(changed(host(1000), memory_used_mib=None, memory_reserved_mib=None)) == 1000


def test_a_lease_without_a_process_is_held_all_the_same() -> None:
    assert plannable(host(1000), lease(300)) == 700


LEFT_OUT: list[tuple[str, dict[str, object]]] = [
    ("it is lost (Xid 79)", {"health": "lost", "problem": "Xid 79"}),
    ("it reports an error", {"health": "error"}),
    ("its compute mode is prohibited", {"compute_mode": "prohibited"}),
    ("MIG mode is on and it has no MIG instance", {"mig_mode": True}),
    ("the driver does not report how much memory it has", {"memory_total_mib": None}),
    ("the driver does not report how much memory it has ", {"memory_total_mib": 0}),
]


@pytest.mark.parametrize(("reason", "fields"), LEFT_OUT, ids=[reason for reason, _ in LEFT_OUT])
def test_devices_that_take_nothing_are_left_out_with_the_reason(reason: str, fields: dict[str, object]) -> None:
    found = plan(ask(actor=(1, 1)), changed(host(100, 100), **fields), (), EXACT)
    assert [device.index for device in found.devices] == [1]
    assert any(line.startswith(f"GPU 0 takes no replica: {reason.strip()}") for line in found.warnings)


def test_mig_instances_are_devices_and_their_parent_is_none() -> None:
    def instance(number: int) -> Device:
        return Device(index=0, mig_index=number, uuid=f"MIG-{number}", name="1g.10gb", memory_total_mib=100)

    inventory = changed(host(1000), mig_mode=True)
    inventory = replace(inventory, devices=(*inventory.devices, instance(0), instance(1)))
    found = plan(ask(actor=(4, 10)), inventory, (), EXACT)
    assert [device.label for device in found.devices] == ["0:0", "0:1"]
    assert list(found.counts) == [2, 2]
    assert not any("GPU 0 takes" in line for line in found.warnings)


def exclusive(*leases: Lease, processes: tuple[DeviceProcess, ...] = ()) -> Plan:
    inventory = changed(host(100, 100), compute_mode="exclusive_process", processes=processes)
    return plan(ask(actor=(4, 1)), inventory, leases, EXACT)


def test_an_exclusive_device_takes_one_replica() -> None:
    found = exclusive()
    assert list(found.counts) == [1, 3]
    assert any("EXCLUSIVE_PROCESS lets one process in, so one replica" in line for line in found.warnings)


@pytest.mark.parametrize("kind", ["C", "C+G"])
def test_an_exclusive_device_with_a_foreign_compute_process_takes_none(kind: str) -> None:
    found = exclusive(processes=(DeviceProcess(pid=9, kind=kind),))
    assert list(found.counts) == [0, 4]
    assert any("and there is one, so nothing is placed here" in line for line in found.warnings)


def test_an_exclusive_device_with_a_lease_takes_none() -> None:
    assert list(exclusive(lease(10)).counts) == [0, 4]


def test_an_exclusive_device_with_a_desktop_on_it_still_takes_one() -> None:
    assert list(exclusive(processes=(DeviceProcess(pid=9, kind="G"),)).counts) == [1, 3]


def test_warnings_name_who_holds_memory_that_could_be_freed() -> None:
    process = DeviceProcess(pid=4711, user="alice", command="python train.py", memory_mib=40)
    inventory = changed(host(100, 100), memory_used_mib=40, processes=(process,), persistence_mode=False)
    found = plan(ask(actor=(1, 1)), replace(inventory, problem="driver and library do not match"), (), EXACT)
    assert "pid 4711 (alice, python train.py) holds 40 MiB on GPU 0, which could be freed" in found.warnings
    assert "driver and library do not match" in found.warnings
    assert any(line.startswith("GPU 0: persistence mode is off") for line in found.warnings)


def test_memory_that_nobody_visible_holds_is_a_warning() -> None:
    found = plan(ask(actor=(1, 1)), host(100, used=[30]), (), EXACT)
    assert "GPU 0: 30 MiB are held by processes that cannot be seen from here" in found.warnings
