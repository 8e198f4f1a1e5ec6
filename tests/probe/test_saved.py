"""A saved status is an inventory: everything in it survives the way to a file and back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.errors import HostFault, UsageError
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.probe import saved
from gpusched.probe.base import read_inventory

TEXT = st.text(max_size=8)
AMOUNT = st.none() | st.integers(0, 1 << 30)
PROCESSES = st.builds(
    DeviceProcess,
    pid=st.integers(1, 1 << 22),
    user=st.none() | TEXT,
    command=st.none() | TEXT,
    memory_mib=AMOUNT,
    kind=st.sampled_from(["C", "G", "C+G"]),
    sm_percent=st.none() | st.integers(0, 100),
)
DEVICES = st.builds(
    Device,
    index=st.integers(0, 63),
    uuid=st.uuids().map(str),
    name=TEXT,
    mig_index=st.none() | st.integers(0, 6),
    memory_total_mib=st.none() | st.integers(1, 1 << 30),
    memory_used_mib=AMOUNT,
    memory_reserved_mib=AMOUNT,
    energy_j=AMOUNT,
    compute_mode=st.sampled_from([None, "default", "exclusive_process"]),
    persistence_mode=st.none() | st.booleans(),
    mig_mode=st.none() | st.booleans(),
    slowed_by=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    cpus=st.lists(st.integers(0, 255), max_size=3).map(tuple),
    health=st.sampled_from(["ok", "lost", "error"]),
    problem=st.none() | TEXT,
    processes=st.lists(PROCESSES, max_size=3).map(tuple),
)
INVENTORIES = st.builds(
    Inventory,
    host=TEXT,
    source=st.sampled_from(["nvml", "profile", "file", "cpu"]),
    devices=st.lists(DEVICES, max_size=4, unique_by=lambda device: device.uuid).map(tuple),
    cpus=st.lists(st.integers(0, 255), max_size=4).map(tuple),
    memory_mib=AMOUNT,
    driver_version=st.none() | TEXT,
    cuda_version=st.none() | TEXT,
    problem=st.none() | TEXT,
)
LEASES = st.lists(
    st.builds(
        Lease,
        device_uuid=TEXT,
        share_mib=st.integers(0, 1 << 20),
        job=TEXT,
        replica=TEXT,
        pid=st.none() | st.integers(1, 1 << 22),
    ),
    max_size=4,
).map(tuple)


@given(inventory=INVENTORIES, leases=LEASES)
def test_a_snapshot_survives_the_way_to_a_file_and_back(
    tmp_path_factory: pytest.TempPathFactory, inventory: Inventory, leases: tuple[Lease, ...]
) -> None:
    path = tmp_path_factory.getbasetemp() / "saved.json"
    path.write_text(json.dumps(saved.document_of(inventory, leases)))
    expected = {field: getattr(inventory, field) for field in inventory.__struct_fields__} | {"source": "file"}
    assert read_inventory(str(path)) == (Inventory(**expected), leases)


OF_THE_FIRST_RELEASES = {  # what `status --json` wrote when devices had fewer fields
    "host": "lab1",
    "source": "nvml",
    "driver_version": "535.129.03",
    "cuda_version": "12.2",
    "devices": [
        {
            "index": 0,
            "uuid": "GPU-a",
            "name": "V100",
            "memory_total_mib": 16160,
            "utilization_percent": 7,
            "health": "ok",
            "memory_leased_mib": 0,
            "processes": [{"pid": 7, "memory_mib": 812, "kind": "C", "job": None, "replica": None, "share_mib": None}],
        }
    ],
    "jobs": [],
}


def test_a_status_that_an_older_version_saved_is_read_and_what_it_lacks_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(OF_THE_FIRST_RELEASES))
    inventory, _ = read_inventory(str(path))
    (device,) = inventory.devices
    assert (device.memory_total_mib, device.slowed_by, device.energy_j) == (16160, None, None)
    assert [(each.memory_mib, each.sm_percent) for each in device.processes] == [(812, None)]
    argv = [sys.executable, "-m", "gpusched", "plan", "--procs", "1", "--json", "--machine", str(path)]
    env = os.environ | {"GPUSCHED_STATE_DIR": str(tmp_path), "GPUSCHED_LEASE_DIR": str(tmp_path / "leases")}
    planned = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert json.loads(planned.stdout)["counts"] == [2]


def test_leases_are_told_by_device_and_by_process() -> None:
    processes = (DeviceProcess(pid=7, memory_mib=812), DeviceProcess(pid=8, memory_mib=5))
    device = Device(index=0, uuid="GPU-a", name="V100", processes=processes)
    inventory = Inventory(host="here", source="nvml", devices=(device,), cpus=(0,))
    leases = (
        Lease(device_uuid="GPU-a", share_mib=1583, job="snake-4", replica="actor.1", pid=7),
        Lease(device_uuid="GPU-a", share_mib=100, job="snake-4", replica="actor.2"),
        Lease(device_uuid="GPU-b", share_mib=100, job="snake-4", replica="actor.3"),
    )
    (row,) = json.loads(json.dumps(saved.document_of(inventory, leases)))["devices"]
    assert row["memory_leased_mib"] == 1683
    assert [(each["job"], each["replica"], each["share_mib"]) for each in row["processes"]] == [
        ("snake-4", "actor.1", 1583),
        (None, None, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "[" * 100_000,
        '{"host": "here"}',
        '{"devices": []}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        '{"host":"a","source":"moon","driver_version":null,"cuda_version":null,"devices":[],"jobs":[]}',
        '{"host":"a","source":"nvml","driver_version":null,"cuda_version":null,"devices":[{"index":"x"}],"jobs":[]}',
    ],
)
def test_a_foreign_file_is_one_clear_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "foreign.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"foreign\.json is not a saved status") as told:
        read_inventory(str(path))
    assert "gpusched status --json" in told.value.hint


@pytest.mark.parametrize("change", [{"uuid": "GPU-a"}, {"memory_used_mib": -1}, {"memory_total_mib": 0}])
def test_what_cannot_be_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    devices = (Device(index=0, uuid="GPU-a", name="a"), Device(index=1, uuid="GPU-b", name="b"))
    document = json.loads(json.dumps(saved.document_of(Inventory(host="a", source="nvml", devices=devices, cpus=()))))
    document["devices"][1] |= change
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"saved\.json"):
        read_inventory(str(path))


def test_a_missing_or_unreadable_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_inventory(str(tmp_path / "missing.json"))
    with pytest.raises(HostFault, match="directory"):
        read_inventory(f"{tmp_path}/")
