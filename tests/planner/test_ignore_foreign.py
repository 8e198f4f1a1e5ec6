"""Processes of others that a plan passes over, what is said of it, and what stays counted."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.errors import NotNow, UsageError
from gpusched.execution.plans import plan_for
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.lease import Lease
from gpusched.model.workload import Role, Workload
from gpusched.planner.foreign import without_ignored
from gpusched.settings import Settings

BOB = DeviceProcess(pid=4711, user="bob", memory_mib=9000)
XORG = DeviceProcess(pid=900, user="root", memory_mib=300, kind="G")
OURS = DeviceProcess(pid=100, user="bob", memory_mib=1000)
SILENT = DeviceProcess(pid=7, user="carol")
LEASE = Lease(device_uuid="GPU-0", share_mib=1500, job="run-1", replica="command.0", pid=100, run_dir="/j")


def host(*processes: DeviceProcess, **fields: Any) -> Inventory:
    used = sum(each.memory_mib or 0 for each in processes)
    one = Device(index=0, uuid="GPU-0", name="V100", memory_total_mib=16000, memory_used_mib=used, processes=processes)
    return Inventory(host="h", source="nvml", devices=(replace(one, **fields),), cpus=(0, 1))


def left(inventory: Inventory, ignored: str) -> tuple[set[int], int | None, tuple[str, ...]]:
    """The pids that still count, what is used, and what is said."""
    found, lines = without_ignored(inventory, (LEASE,), ignored)
    (device,) = found.devices
    return {each.pid for each in device.processes}, device.memory_used_mib, lines


@pytest.mark.parametrize(
    ("ignored", "gone"),
    [("4711", {4711}), ("bob", {4711}), ("<1GiB", {900}), ("<301MiB,bob", {4711, 900}), ("<300MiB", set())],
)
def test_processes_are_passed_over_by_pid_by_user_and_by_amount_and_those_of_jobs_are_not(
    ignored: str, gone: set[int]
) -> None:
    processes = (BOB, XORG, OURS)
    pids, used, _ = left(host(*processes), ignored)
    assert pids == {4711, 900, 100} - gone
    assert used == sum(each.memory_mib or 0 for each in processes if each.pid not in gone)


def test_what_is_passed_over_and_what_that_risks_is_said() -> None:
    _, _, (line,) = left(host(BOB, OURS), "bob")
    assert line == (
        "--ignore-foreign plans as if these were not there: pid 4711 of bob (9000 MiB of GPU 0); "
        "whichever asks for memory last, they or the job, may find none and fail"
    )


def test_a_value_that_matches_nothing_is_said() -> None:
    _, _, lines = left(host(BOB), "alice,bob")
    assert "--ignore-foreign alice matches no process of others on the devices that may be used" in lines
    assert len(lines) == 2


def test_of_a_process_whose_memory_is_not_reported_what_is_used_stays_used() -> None:
    pids, used, (line,) = left(host(BOB, SILENT), "carol")
    assert (pids, used) == ({4711}, 9000)
    assert "pid 7 of carol (an unknown amount of GPU 0)" in line
    assert left(host(SILENT), "<1GiB")[0] == {7}


def test_a_device_that_lets_one_process_in_is_no_place_beside_another_one() -> None:
    pids, _, lines = left(host(BOB, compute_mode="exclusive_process"), "bob")
    assert pids == {4711}
    effect = "--ignore-foreign has no effect on pid 4711 of bob (9000 MiB of GPU 0)"
    assert lines == (f"{effect}: the compute mode of its device lets only one process in",)


@pytest.mark.parametrize("text", ["", ",", "4711,", "<", "<1", "<lots", "-1", "a b", "<1GiB;bob", "\x1b[0m"])
def test_what_it_cannot_mean_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--ignore-foreign"):
        left(host(BOB), text)


@given(st.text(max_size=12))
def test_any_text_is_a_choice_or_an_error_of_ours(text: str) -> None:
    with suppress(UsageError):
        pids, used, lines = left(host(BOB), text)
        assert lines
        assert (pids, used) in (({4711}, 9000), (set(), 0))


def submission(ignored: str | None, need: CommandRequest) -> Submission:
    workload = Workload(name="run", roles=(Role(name="command", command=("true",)),))
    return Submission(
        workload=workload, command=need, cwd="/", environ={}, python="", xla_variable="", ignore_foreign=ignored
    )


@pytest.mark.parametrize("need", [CommandRequest(devices=1), CommandRequest(memory_mib=9000)])
def test_a_plan_that_has_no_room_beside_a_process_has_it_over_that_process(
    settings: Settings, need: CommandRequest
) -> None:
    inventory = host(BOB)
    with pytest.raises(NotNow):
        plan_for(submission(None, need), inventory, (), settings)
    plan = plan_for(submission("bob", need), inventory, (), settings)
    assert plan.replicas[0].device_index == 0
    assert any("pid 4711 of bob" in line for line in plan.warnings)


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    return Settings(state_dir=tmp_path, runtime_dir=tmp_path, lease_dir=tmp_path)
