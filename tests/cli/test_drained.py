"""A drained device, as status shows it and as plan and launch leave it."""

import json
import time
from pathlib import Path

import pytest

from gpusched.linux.processes import boot_id
from gpusched.probe.drained import Drained, write_drained
from tests.cli.command import Command
from tests.stand_in.library import FOUR_V100, StandIn

UUID = "GPU-cafe0001-5ca1-ab1e-0000-00000000da7a"


@pytest.fixture
def drained(tmp_path: Path, stand_in: StandIn) -> Command:
    """The command line of a host with four GPUs, of which GPU 1 is drained."""
    host = stand_in.host(FOUR_V100 + "set * compute 0\n").variables
    command = Command(tmp_path, host)
    command.state.mkdir()
    why = Drained(reason="Xid 79, the GPU has fallen off the bus", since=time.time(), boot_id=boot_id())
    write_drained(command.state, {UUID: why})
    return command


def test_status_shows_since_when_a_device_is_drained_and_why(drained: Command) -> None:
    devices = json.loads(drained.run("status", "--json").stdout)["devices"]
    assert [device["health"] for device in devices] == ["ok", "error", "ok", "ok"]
    assert devices[1]["problem"].startswith("drained since ")
    assert "Xid 79, the GPU has fallen off the bus" in drained.run("status").stdout


def test_plan_places_nothing_on_a_drained_device_and_says_why(drained: Command) -> None:
    plan = json.loads(drained.run("plan", "--procs", "20", "--json").stdout)
    assert all(replica["device_index"] != 1 for replica in plan["replicas"])
    assert "Xid 79" in json.dumps(plan)


def test_launch_places_nothing_there_either(drained: Command) -> None:
    told = drained.run("launch", drained.toy("fails.py"), "--gpus", "1")
    assert told.returncode == 3
    assert "Xid 79" in told.stderr


def test_a_drain_of_an_earlier_boot_is_over(drained: Command) -> None:
    write_drained(drained.state, {UUID: Drained(reason="Xid 79", since=1.0, boot_id="an earlier one")})
    devices = json.loads(drained.run("status", "--json").stdout)["devices"]
    assert [device["health"] for device in devices] == ["ok"] * 4
