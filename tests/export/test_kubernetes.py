"""What a pod gets: its share as the site gives it out, its rank, and keys that are in no manifest."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpusched.channel.remote import hosts
from gpusched.errors import UsageError
from gpusched.execution.network import make_keys
from gpusched.export import Exported, ShareResource, kubernetes, manifest_name
from gpusched.export.kubernetes import MOST_ACTORS
from gpusched.joining.keys import read_join_key, read_server_key
from gpusched.model.workload import Role, Workload
from gpusched.probe.base import read_inventory
from gpusched.probe.saved import document_of
from tests.export.exporting import exported, literal, only


def jobs(what: Exported, share: ShareResource = "nvidia") -> dict[str, Any]:
    return {job["metadata"]["name"]: job["spec"] for job in only(kubernetes(what, share, None).documents, "Job")}


def pod(job: Any) -> Any:
    return job["template"]["spec"]


def container(job: Any) -> Any:
    [one] = pod(job)["containers"]
    return one


def env(job: Any) -> dict[str, str]:
    return {one["name"]: literal(one["value"]) for one in container(job)["env"] if "value" in one}


def test_replicas_that_differ_in_their_rank_only_are_one_job() -> None:
    found = jobs(exported(machine="p3.8xlarge", procs="32"))

    assert {name: job["completions"] for name, job in found.items()} == {"snake-learner": 1, "snake-actor": 32}
    assert env(found["snake-actor"])["GPUSCHED_ROLE_COUNT"] == "32"
    assert int(env(found["snake-actor"])["GPUSCHED_PATIENCE_S"]) > 30 * 86_400, "the learner's pod may wait for long"
    assert container(found["snake-actor"])["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert "CUDA_VISIBLE_DEVICES" not in env(found["snake-actor"]), "the device plugin says which it is"


def test_where_no_resource_is_asked_for_the_devices_of_the_plan_are_named_and_ranks_go_on() -> None:
    found = jobs(exported(machine="p3.8xlarge", procs="32"), "none")

    actors = [job for name, job in found.items() if "actor" in name]
    assert [job["completions"] for job in actors] == [2, 10, 10, 10]
    assert [env(job)["NVIDIA_VISIBLE_DEVICES"] for job in actors] == ["0", "1", "2", "3"]
    begins = [container(job)["command"][2] for job in actors]
    assert [f"JOB_COMPLETION_INDEX + {rank})" in begin for rank, begin in zip((0, 2, 12, 22), begins, strict=True)]
    assert not any("resources" in container(job) for job in found.values())


def test_a_real_host_is_named_with_the_uuids_of_its_devices(tmp_path: Path) -> None:
    inventory, _ = read_inventory("2x16GiB")
    (tmp_path / "host.json").write_text(json.dumps(document_of(inventory) | {"host": "lab1"}))

    found = jobs(exported(machine=str(tmp_path / "host.json"), procs="1"), "none")

    uuids = [device.uuid for device in inventory.devices]
    assert [env(job)["CUDA_VISIBLE_DEVICES"] for job in found.values()] == uuids
    assert [env(job)["NVIDIA_VISIBLE_DEVICES"] for job in found.values()] == uuids
    assert all(pod(job)["nodeSelector"] == {"kubernetes.io/hostname": "lab1"} for job in found.values())


def test_hami_is_asked_for_the_share_and_the_fraction_is_of_it() -> None:
    what = exported(machine="p3.8xlarge", procs="32")
    found = jobs(what, "hami")

    learner, actor = (container(found[name])["resources"]["limits"] for name in ("snake-learner", "snake-actor"))
    assert learner == {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12221 + 450}
    assert actor == {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1133 + 450}
    assert env(found["snake-actor"])["GPUSCHED_MEMORY_LIMIT_MIB"] == "1133"
    assert env(found["snake-actor"])["GPUSCHED_MEMORY_FRACTION"] == "0.7157", "1133 / 1583, rounded down"


def test_one_replica_a_device_asks_hami_for_all_its_cores() -> None:
    found = jobs(exported(machine="4x16GiB", procs="3", policy="exclusive"), "hami")

    assert {container(job)["resources"]["limits"]["nvidia.com/gpucores"] for job in found.values()} == {100}


def test_replicas_without_a_device_ask_for_nothing_and_see_none() -> None:
    found = jobs(exported(words=["--inference", "learner"], machine="p3.8xlarge", procs="4"))

    assert "resources" in container(found["snake-learner"])
    assert "resources" not in container(found["snake-actor"])
    assert env(found["snake-actor"])["CUDA_VISIBLE_DEVICES"] == ""


def test_no_key_is_in_a_manifest_and_an_actor_gets_only_its_own(tmp_path: Path) -> None:
    make_keys(tmp_path, "snake")
    written = kubernetes(exported(machine="cpu", procs="2"), "none", str(tmp_path))

    server, join = read_server_key(tmp_path / "server.key"), read_join_key(tmp_path / "join.key")
    text = json.dumps(written)
    assert not [
        part for part in (server.secret, server.public, join.secret, join.public) if json.dumps(part)[1:-1] in text
    ]
    assert f"--from-file={tmp_path}/server.key" in text
    mounted = {
        job["metadata"]["name"]: [item["key"] for item in pod(job["spec"])["volumes"][1]["secret"]["items"]]
        for job in only(written.documents, "Job")
    }
    assert mounted == {"snake-learner": ["server.key", "allowed.json"], "snake-actor": ["join.key"]}


def test_a_restart_is_as_the_workload_says() -> None:
    what = exported(machine="cpu", procs="2")

    found = jobs(what)

    assert [found[name]["backoffLimitPerIndex"] for name in ("snake-learner", "snake-actor")] == [3, 5]
    assert pod(found["snake-actor"])["terminationGracePeriodSeconds"] == 20


def test_what_looks_like_a_variable_stays_as_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "$(HOME)").touch()
    found = jobs(exported(words=["--weights", str(tmp_path / "$(HOME)")], machine="cpu", procs="1"))

    [settings] = [one["value"] for one in container(found["snake-actor"])["env"] if one["name"] == "GPUSCHED_SETTINGS"]
    assert "/$$(HOME)" in settings


def test_more_actors_than_a_learner_takes_with_one_key_are_refused() -> None:
    assert hosts._MOST_OF_A_KEY == MOST_ACTORS
    with pytest.raises(UsageError, match="250 with one key"):
        kubernetes(exported(machine="64x80GiB", procs="251"), "nvidia", None)


@pytest.mark.parametrize(("workload", "name"), [("mnist_towers", "mnist-towers"), ("snake", "snake"), ("a_", "a")])
def test_a_name_is_made_of_letters_that_a_cluster_takes(workload: str, name: str) -> None:
    role = Role(name="learner", command=("x",))

    assert manifest_name(Workload(name=workload, roles=(role,)), None) == name


@pytest.mark.parametrize("given", ["Snake", "1st", "a_b", "a-", "", "x" * 33])
def test_a_name_that_no_cluster_takes_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        manifest_name(Workload(name="snake", roles=()), given)
