"""Machines that are not here: what their names and descriptions stand for."""

import pytest

from gpusched.errors import UsageError
from gpusched.model.device import Inventory
from gpusched.probe.base import read_inventory
from gpusched.probe.profile import PROFILES


def machine(name: str) -> Inventory:
    inventory, leases = read_inventory(name)
    assert leases == ()
    return inventory


def test_the_home_machine_has_four_v100_without_a_reserve() -> None:
    inventory = machine("p3.8xlarge")
    assert [device.memory_total_mib for device in inventory.devices] == [16160] * 4
    assert [device.memory_reserved_mib for device in inventory.devices] == [0] * 4
    assert [device.uuid for device in inventory.devices] == [f"SIM-p3.8xlarge-{index}" for index in range(4)]
    assert inventory.cpus == tuple(range(32))
    assert inventory.source == "profile"
    assert inventory.simulated


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_is_a_whole_machine(name: str) -> None:
    inventory = machine(name)
    assert inventory.devices
    assert inventory.memory_mib
    assert len({device.uuid for device in inventory.devices}) == len(inventory.devices)
    for device in inventory.devices:
        assert device.memory_total_mib is not None
        assert device.memory_reserved_mib is not None
        assert 0 <= device.memory_reserved_mib < device.memory_total_mib // 20
        assert set(device.cpus) <= set(inventory.cpus)


@pytest.mark.parametrize("family", ["p2", "p3", "p4d", "p5", "g4dn", "g5", "g6", "dgx-a100", "dgx-h100"])
def test_every_promised_family_has_a_machine(family: str) -> None:
    assert any(name.partition(".")[0] == family for name in PROFILES)


def test_a_dgx_knows_the_cpus_near_each_device() -> None:
    first, last = machine("dgx-h100").devices[0], machine("DGX-H100").devices[7]
    assert (first.cpus[:1], len(first.cpus)) == ((0,), 112)
    assert (last.cpus[:1], len(last.cpus)) == ((56,), 112)


@pytest.mark.parametrize(
    ("text", "totals"),
    [
        ("4x16GiB", [16384] * 4),
        ("1x80GiB+2x24GiB", [81920, 24576, 24576]),
        (" 2x512MiB + 1x1.5GiB ", [512, 512, 1536]),
    ],
)
def test_a_description_is_a_machine(text: str, totals: list[int]) -> None:
    inventory = machine(text)
    assert [device.memory_total_mib for device in inventory.devices] == totals
    assert [device.index for device in inventory.devices] == list(range(len(totals)))
    assert inventory.simulated


@pytest.mark.parametrize(
    "text", ["4x12XiB", "0x16GiB", "4x0GiB", "4xNaN", "4x16", "20000x1GiB", "9999x1GiB+2x1GiB", "999999999999999x1GiB"]
)
def test_wrong_numbers_in_a_description_are_told(text: str) -> None:
    with pytest.raises(UsageError, match=r"machine|devices"):
        machine(text)


def test_an_unknown_machine_is_told_what_is_near() -> None:
    with pytest.raises(UsageError, match=r"p3\.8xlarge") as told:
        machine("p3.9xlarge")
    assert "4x16GiB" in told.value.hint
    with pytest.raises(UsageError, match="dgx-a100"):
        machine("abacus")


def test_cpu_is_this_host_without_devices() -> None:
    inventory = machine("cpu")
    assert inventory.source == "cpu"
    assert inventory.devices == ()
    assert inventory.cpus
    assert inventory.memory_mib
    assert not inventory.simulated
