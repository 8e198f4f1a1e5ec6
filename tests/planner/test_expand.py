"""What others consume of a plan: replica specs, and the JSON document of docs/reference.md."""

import json
from pathlib import Path

import msgspec

from gpusched.model.device import Inventory
from gpusched.model.job import CommandRequest
from gpusched.model.workload_file import parse_workload
from gpusched.planner import Rules, document, plan, replica_specs, request_for
from gpusched.planner.command import plan_command
from tests.planner.building import host

WORKLOAD = parse_workload(
    {
        "name": "test",
        "roles": {
            "learner": {"command": ["{python}", "-m", "learn"], "memory": {"min": "2GiB", "share": 0.75}},
            "actor": {
                "command": ["{python}", "act.py", "{python}!", "{{rank}}", "${HOME}"],
                "count": 2,
                "memory": {"min": "512MiB"},
            },
        },
    },
    Path("workload.toml"),
)
XLA = "XLA_CLIENT_MEM_FRACTION"


def test_specs_hold_command_place_limits_and_identity() -> None:
    found = plan(request_for(WORKLOAD), host(16_160, 16_160))
    specs = replica_specs(
        found,
        WORKLOAD,
        python="/opt/python",
        cwd="/data",
        xla_variable=XLA,
        identity=lambda replica: {"GPUSCHED_REPLICA": replica.name},
    )
    assert [spec.replica.name for spec in specs] == ["learner.0", "actor.0", "actor.1"]
    assert specs[0].argv == ("/opt/python", "-m", "learn")
    assert specs[1].argv == ("/opt/python", "act.py", "/opt/python!", "{rank}", "${HOME}")
    assert {spec.cwd for spec in specs} == {"/data"}
    actor = specs[1]
    assert actor.env["GPUSCHED_REPLICA"] == "actor.0"
    assert actor.env["CUDA_VISIBLE_DEVICES"] == actor.replica.device_uuid
    assert actor.env["GPUSCHED_MEMORY_LIMIT_MIB"] == str(actor.replica.limit_mib)
    assert actor.env[XLA] == f"{actor.replica.fraction / 10_000:.4f}"


def test_document_has_exactly_the_fields_of_the_contract() -> None:
    told = document(plan(request_for(WORKLOAD), host(16_160, 16_160)), XLA)
    assert json.loads(msgspec.json.encode(told)) == told
    assert list(told) == ["host", "source", "counts", "devices", "replicas", "measured", "why", "warnings"]
    devices, replicas = told["devices"], told["replicas"]
    assert isinstance(devices, list)
    assert isinstance(replicas, list)
    assert list(devices[0]) == [
        *("index", "uuid", "name", "memory_total_mib", "memory_plannable_mib", "memory_planned_mib", "replicas")
    ]
    assert list(replicas[0]) == [
        *("name", "role", "rank", "device_index", "device_uuid", "limit_mib", "context_mib", "share_mib"),
        *("fraction", "cpus", "env"),
    ]


def test_a_command_on_several_devices_tells_its_further_ones_so_that_the_sums_hold() -> None:
    told = document(plan_command(CommandRequest(devices=2), host(16_160, 12_345, 8_000), (), Rules(), "run"), XLA)
    devices, replicas = told["devices"], told["replicas"]
    assert isinstance(devices, list)
    assert isinstance(replicas, list)
    (replica,) = replicas
    assert [share["device_index"] for share in (replica, *replica["further"])] == [1, 0]
    for device in devices:
        shares = [one["share_mib"] for one in (replica, *replica["further"]) if one["device_uuid"] == device["uuid"]]
        assert sum(shares) == device["memory_planned_mib"]
        assert bool(shares) == (device["replicas"] == ["command.0"])


def test_a_fraction_never_stands_for_more_than_the_limit() -> None:
    found = plan(request_for(WORKLOAD), host(16_160, 12_345))
    told = document(found, XLA)["replicas"]
    assert isinstance(told, list)
    totals = {device.uuid: device.total_mib for device in found.devices}
    for replica in told:
        limit = replica["fraction"] * totals[replica["device_uuid"]]
        assert replica["limit_mib"] - 2 < limit <= replica["limit_mib"]


def test_document_without_a_gpu_has_no_devices_and_no_limits() -> None:
    inventory = Inventory(host="here", source="cpu", devices=(), cpus=(0, 1, 2, 3))
    told = document(plan(request_for(WORKLOAD), inventory), XLA)
    assert (told["source"], told["counts"], told["devices"]) == ("cpu", [], [])
    replicas = told["replicas"]
    assert isinstance(replicas, list)
    assert [replica["device_uuid"] for replica in replicas] == [None] * 3
    assert {replica["env"]["CUDA_VISIBLE_DEVICES"] for replica in replicas} == {""}
    assert not any("GPUSCHED_MEMORY_LIMIT_MIB" in replica["env"] for replica in replicas)
