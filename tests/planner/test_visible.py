"""What CUDA_VISIBLE_DEVICES leaves: read as CUDA reads it, on the devices that gpusched lists."""

import pytest
from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.device import Device, Inventory
from gpusched.model.job import VisibleDevices
from gpusched.planner import Rules, plan, restriction, select_devices
from tests.planner.building import ask, host


def four() -> Inventory:
    """GPUs 0 to 3; 3 is in MIG mode and there as two instances."""
    inventory = host(100, 100, 100, 100)
    uuids = ("GPU-aa1", "GPU-ab2", "GPU-c", "GPU-d")
    rows = [replace(device, uuid=uuid) for device, uuid in zip(inventory.devices, uuids, strict=True)]
    rows[3] = replace(rows[3], mig_mode=True)
    rows += [Device(index=3, mig_index=i, uuid=f"MIG-{i}", name="1g", memory_total_mib=10) for i in range(2)]
    return replace(inventory, devices=tuple(rows))


@pytest.mark.parametrize(
    ("names", "expected", "says"),
    [
        ("2", {"GPU-c"}, "only GPU 2 may be used"),
        ("2,0", {"GPU-aa1", "GPU-c"}, "only GPU 0 and 2 may be used"),
        (" 1 , 1", {"GPU-ab2"}, "only GPU 1 may be used"),
        ("GPU-ab", {"GPU-ab2"}, "only GPU 1 may be used"),
        ("MIG-1", {"MIG-1"}, "only GPU 3:1 may be used"),
        ("3", {"GPU-d", "MIG-0", "MIG-1"}, "only GPU 3:0 and 3:1 may be used"),
        ("GPU-d", {"GPU-d", "MIG-0", "MIG-1"}, "only GPU 3:0 and 3:1 may be used"),
        ("", set(), "no device may be used"),
        ("-1", set(), "no device may be used"),
        ("NoDevFiles", set(), "no device may be used"),
        ("0,-1,2", {"GPU-aa1"}, "only GPU 0 may be used"),
        ("0,9,2", {"GPU-aa1"}, "only GPU 0 may be used; '9' is no device here, and CUDA stops there"),
        ("GPU-a,2", set(), "no device may be used; 'GPU-a' is no device here, and CUDA stops there"),
        ("9" * 5000, set(), "no device may be used"),
        ("0:1", set(), "no device may be used"),
    ],
)
def test_it_leaves_what_cuda_would_see(names: str, expected: set[str], says: str) -> None:
    found = restriction(four(), VisibleDevices(names=names))

    assert set(found.uuids) == expected
    assert found.line.startswith(f"CUDA_VISIBLE_DEVICES={names!r}: {says}")


def test_one_that_names_all_devices_restricts_nothing_and_is_not_mentioned() -> None:
    assert restriction(four(), VisibleDevices(names="3,2,1,0")).line == ""


def test_an_index_that_cuda_may_count_otherwise_is_refused() -> None:
    first, second = host(100, 100).devices
    unlike = replace(host(100, 100), devices=(first, replace(second, name="another card")))

    with pytest.raises(UsageError, match="the fastest first") as raised:
        restriction(unlike, VisibleDevices(names="0"))
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in raised.value.hint
    assert restriction(unlike, VisibleDevices(names="0", by_bus=True)).uuids == {first.uuid}
    assert restriction(unlike, VisibleDevices(names=first.uuid)).uuids == {first.uuid}
    assert restriction(unlike, VisibleDevices(names="-1")).uuids == frozenset()
    assert restriction(unlike, VisibleDevices(names="1,0")).line == ""


def test_devices_are_chosen_within_it() -> None:
    visible = VisibleDevices(names="0,1")
    assert set(select_devices(four(), None, None, visible) or ()) == {"GPU-aa1", "GPU-ab2"}
    assert set(select_devices(four(), "1", None, visible) or ()) == {"GPU-ab2"}
    assert set(select_devices(four(), None, "1,2", visible) or ()) == {"GPU-aa1"}
    assert select_devices(host(), None, None, visible) is None
    with pytest.raises(UsageError, match="--gpus: GPU 2 is outside of CUDA_VISIBLE_DEVICES='0,1'") as raised:
        select_devices(four(), "0,2", None, visible)
    assert "unset CUDA_VISIBLE_DEVICES" in raised.value.hint
    with pytest.raises(UsageError, match="leave no device"):
        select_devices(four(), None, "0,1", visible)


def test_a_plan_and_its_refusal_repeat_the_line() -> None:
    rules = Rules(only=frozenset({"GPU-0"}), notes=("CUDA_VISIBLE_DEVICES='0': only GPU 0 may be used",), context_mib=5)
    assert rules.notes[0] in plan(ask(actor=(1, 10)), host(100, 100), (), rules).warnings
