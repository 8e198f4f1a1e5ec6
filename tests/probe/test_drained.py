"""What is drained stays so until somebody lifts it or the host boots, and every snapshot tells it."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.errors import HostFault
from gpusched.model.device import Device, Inventory
from gpusched.planner.capacity import excluded_devices
from gpusched.probe.drained import Drained, drained_by, lift, mark, read_drained, write_drained

NOW = time.time()
XID = Drained(reason="Xid 79: it has fallen off the bus", since=NOW, boot_id="this")


def host(*devices: Device) -> Inventory:
    return Inventory(host="h", source="nvml", devices=devices, cpus=(0,))


def device(index: int, **fields: object) -> Device:
    return Device(**({"index": index, "uuid": f"GPU-{index}", "name": "V100"} | fields))  # type: ignore[arg-type]


def test_what_is_written_is_read_in_the_same_boot_and_forgotten_in_the_next(tmp_path: Path) -> None:
    by_hand = Drained(reason="dust", since=1.0)
    write_drained(tmp_path, {"GPU-0": XID, "GPU-1": by_hand})
    assert read_drained(tmp_path, "this") == {"GPU-0": XID, "GPU-1": by_hand}
    assert read_drained(tmp_path, "next") == {"GPU-1": by_hand}
    assert [entry.name for entry in tmp_path.iterdir()] == ["drained.json"]


def test_nothing_is_drained_where_nothing_was_written(tmp_path: Path) -> None:
    assert read_drained(tmp_path, "this") == {}
    assert read_drained(tmp_path / "none", "this") == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"GPU-0": 1}', b"\xff", b'{"GPU-0": {"reason": 3}}'])
def test_a_file_that_is_no_such_file_is_told_and_never_taken_for_nothing_drained(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "drained.json").write_bytes(content)
    with pytest.raises(HostFault, match=r"drained\.json"):
        read_drained(tmp_path, "this")


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostFault, match="cannot be written"):
        write_drained(tmp_path / "none", {})


def test_a_drained_device_is_an_error_with_since_when_and_why_and_the_others_are_as_they_were() -> None:
    now = time.time()  # of this day, also in a test that runs over midnight
    marked = mark(host(device(0), device(1)), {"GPU-1": replace(XID, since=now)})
    assert marked.devices[0] == device(0)
    assert marked.devices[1].health == "error"
    clock = time.strftime("%H:%M", time.localtime(now))
    assert marked.devices[1].problem == f"drained since {clock}, after a fault: Xid 79: it has fallen off the bus"
    assert [drained_by(each) for each in marked.devices] == [None, "fault"]
    by_hand = mark(host(device(1)), {"GPU-1": Drained(reason="dust, after a fault: ours", since=NOW)})
    assert [drained_by(each) for each in by_hand.devices] == ["person"]


def test_a_drain_of_another_day_tells_the_day() -> None:
    old = Drained(reason="dust", since=NOW - 3 * 86400)
    problem = mark(host(device(0)), {"GPU-0": old}).devices[0].problem
    assert problem == time.strftime("drained since %Y-%m-%d %H:%M: dust", time.localtime(NOW - 3 * 86400))


def test_the_instances_on_a_drained_board_are_drained_too() -> None:
    devices = (device(0, mig_mode=True), device(0, uuid="MIG-0", mig_index=0), device(1))
    assert [each.health for each in mark(host(*devices), {"GPU-0": XID}).devices] == ["error", "error", "ok"]


def test_a_lost_device_stays_lost() -> None:
    lost = device(0, health="lost", problem="it has fallen off the bus; reboot the host")
    assert mark(host(lost), {"GPU-0": XID}).devices == (lost,)


def test_a_lifted_drain_is_none_and_remembers_the_errors_that_were_accepted() -> None:
    lifted = lift({"GPU-0": XID}, device(0, ecc_errors=2))
    assert mark(host(device(0)), lifted).devices == (device(0),)
    assert (lifted["GPU-0"].lifted, lifted["GPU-0"].ecc_errors) == (True, 2)
    assert lift({}, device(0)) == {}


def test_the_planner_leaves_a_drained_device_and_says_why() -> None:
    whole = device(0, memory_total_mib=16160, memory_used_mib=0)
    (reason,) = excluded_devices(mark(host(whole), {"GPU-0": XID}), None)
    assert "Xid 79" in reason
