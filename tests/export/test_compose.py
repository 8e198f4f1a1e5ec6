"""What a service gets: the plan's device and environment, and nothing that Compose would replace."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.errors import UsageError
from gpusched.export import Exported, Manifests, compose, kubernetes
from gpusched.export.text import as_yaml
from gpusched.planner import document
from gpusched.probe.base import read_inventory
from gpusched.probe.saved import document_of
from tests.export.exporting import exported, literal


def services(what: Exported) -> dict[str, Any]:
    [found] = compose(what).documents
    return dict(json.loads(json.dumps(found))["services"])


def devices(service: Any) -> Any:
    [asked] = service["deploy"]["resources"]["reservations"]["devices"]
    return asked["device_ids"]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A host with two GPUs, as `gpusched status --json` would save it."""
    inventory, _ = read_inventory("2x16GiB")
    (tmp_path / "host.json").write_text(json.dumps(document_of(inventory)))
    return str(tmp_path / "host.json")


def test_each_replica_is_a_service_with_its_device_and_the_environment_of_the_plan(saved: str) -> None:
    what = exported(machine=saved, procs="5")
    found = services(what)

    planned: Any = document(what.plan, what.xla_variable)["replicas"]
    assert list(found) == ["learner", *(f"actor-{rank}" for rank in range(5))]
    for service, replica in zip(found.values(), planned, strict=True):
        assert devices(service) == [replica["device_uuid"]]
        assert replica["env"].items() <= service["environment"].items()
        assert service["environment"]["GPUSCHED_REPLICA"] == replica["name"]


def test_devices_that_are_only_described_are_named_by_index() -> None:
    found = services(exported(machine="p3.8xlarge", procs="4"))

    assert sorted(devices(service) for service in found.values()) == [["0"], ["1"], ["1"], ["2"], ["3"]]
    assert not any("CUDA_VISIBLE_DEVICES" in service["environment"] for service in found.values())


def test_without_a_device_none_is_reserved() -> None:
    found = services(exported(machine="cpu", procs="2"))

    assert not any("deploy" in service for service in found.values())
    assert {service["environment"]["CUDA_VISIBLE_DEVICES"] for service in found.values()} == {""}


def test_a_restart_is_as_the_workload_says() -> None:
    found = services(exported(machine="cpu", procs="1"))

    assert [found[name]["restart"] for name in ("learner", "actor-0")] == ["on-failure:3", "on-failure:5"]


def test_a_role_that_always_restarts_is_told_that_it_would_have_no_end(tmp_path: Path) -> None:
    text = '[roles.learner]\ncommand = ["l"]\nrestart = { policy = "never" }\n[roles.actor]\ncommand = ["a"]\n'
    (tmp_path / "workload.toml").write_text(f'name = "mine"\n{text}restart = {{ policy = "always", max = 2 }}\n')
    written = compose(exported(str(tmp_path / "workload.toml"), machine="cpu"))

    [found] = json.loads(json.dumps(written.documents))
    assert [service["restart"] for service in found["services"].values()] == ["no", "on-failure:2"]
    assert "The role actor is restarted only after a failure" in " ".join(written.notes)


def test_what_looks_like_a_variable_stays_as_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "${HOME}").touch()
    found = services(exported(words=["--weights", str(tmp_path / "${HOME}")], machine="cpu", procs="1"))

    settings = found["learner"]["environment"]["GPUSCHED_SETTINGS"]
    assert "/$${HOME}" in settings
    assert json.loads(literal(settings))["weights"] == str(tmp_path / "${HOME}")


def test_a_workload_in_which_nobody_listens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "workload.toml").write_text('name = "mine"\n[roles.one]\ncommand = ["x"]\n')

    with pytest.raises(UsageError, match="nothing in it could listen"):
        compose(exported(str(tmp_path / "workload.toml"), machine="cpu"))


@pytest.mark.parametrize("write", [compose, lambda what: kubernetes(what, "nvidia", None)])
def test_two_roles_of_one_exported_name_are_refused(write: Callable[[Exported], Manifests], tmp_path: Path) -> None:
    roles = "".join(f'[roles.{role}]\ncommand = ["x"]\n' for role in ("learner", "eval_a", "eval-a"))
    (tmp_path / "workload.toml").write_text(f'name = "mine"\n{roles}')

    with pytest.raises(UsageError, match="would be called"):
        write(exported(str(tmp_path / "workload.toml"), machine="cpu"))


def test_notes_are_comments_whatever_a_saved_host_is_called(tmp_path: Path) -> None:
    inventory, _ = read_inventory("2x16GiB")
    (tmp_path / "host.json").write_text(json.dumps(document_of(inventory) | {"host": "a\nservices: \x07 \u2028b"}))
    written = compose(exported(machine=str(tmp_path / "host.json"), procs="1"))

    assert list(yaml.safe_load_all(as_yaml(written))) == json.loads(json.dumps(written.documents))
