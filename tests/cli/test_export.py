"""`gpusched export` as a person runs it: what it prints, where it writes, and what it refuses."""

import json
import stat
from pathlib import Path

import pytest
import yaml

from tests.cli.command import Command

CPU = ("--machine", "cpu", "--procs", "2", "--image", "lab/snake:1")


def test_yaml_and_json_say_the_same_and_nothing_else_is_told(command: Command) -> None:
    plain = command.run("export", "kubernetes", "snake", *CPU)
    told = command.run("export", "kubernetes", "snake", *CPU, "--json")

    documents = list(yaml.safe_load_all(plain.stdout))
    assert (plain.returncode, told.returncode) == (0, 0)
    assert json.loads(told.stdout) == {"apiVersion": "v1", "kind": "List", "items": documents}
    assert plain.stderr == ""
    assert "kubectl create secret generic snake-keys" in plain.stdout
    assert "kubectl create secret generic snake-keys" in told.stderr, "JSON has no comments"
    assert not command.state.exists()


def test_the_options_of_the_workload_are_its_settings(command: Command) -> None:
    told = command.run("export", "compose", "snake", *CPU, "--json", "--network", "small", "--name", "mine")

    found = json.loads(told.stdout)
    settings = json.loads(found["services"]["actor-1"]["environment"]["GPUSCHED_SETTINGS"])
    assert settings["network"] == "small"
    assert found["name"] == "mine"


def test_keys_are_made_once_and_only_for_their_user(command: Command, tmp_path: Path) -> None:
    words = ("export", "kubernetes", "snake", *CPU, "--keys", "keys", "-o", "out/")
    first = command.run(*words, cwd=tmp_path)
    made = {path.name: path.read_bytes() for path in (tmp_path / "keys").glob("*.key")}
    again = command.run(*words, cwd=tmp_path)

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert set(made) == {"server.key", "join.key"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "keys").glob("*.key")} == made
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()} == {0o600}
    assert "--from-file=keys/join.key" in (tmp_path / "out" / "snake.yaml").read_text()
    assert first.stdout == ""


def test_without_an_image_its_place_is_marked_and_told(command: Command) -> None:
    told = command.run("export", "compose", "snake", "--machine", "cpu", "--procs", "1")

    assert {service["image"] for service in yaml.safe_load(told.stdout)["services"].values()} == {"NAME-AN-IMAGE"}
    assert "No image was named" in told.stderr


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("kubernetes", "snake", "--machine", "2x16GiB", "--procs", "1000"), 3, "MiB"),
        (("compose", "snake", *CPU, "--share-resource", "hami"), 2, "--share-resource belongs to kubernetes"),
        (("compose", "snake", *CPU, "--keys", "k"), 2, "--keys belongs to kubernetes"),
        (("compose", "snake", *CPU, "-o", "/proc/nowhere/x"), 5, "cannot be written"),
        (("kubernetes", "snake", *CPU, "--keys", "/proc/nowhere"), 5, "/proc/nowhere"),
        (("nomad", "snake"), 2, "nomad"),
    ],
)
def test_what_cannot_be_is_told_in_one_message(
    words: tuple[str, ...], code: int, complaint: str, command: Command
) -> None:
    told = command.run("export", *words)

    assert told.returncode == code
    assert told.stderr.startswith("gpusched: ")
    assert complaint in told.stderr
    assert "Traceback" not in told.stderr


def test_the_batch_script_of_a_cluster_is_what_launch_would_submit(command: Command) -> None:
    words = ("--nodes", "2", "--gpus-per-node", "0", "--procs", "3")
    toy = command.toy("feeding.py", memory=False)
    exported = command.run("export", "slurm", toy, *words)
    shown = command.run("launch", toy, "--engine", "slurm", *words, "--dry-run")
    assert exported.returncode == 0
    assert exported.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=gpusched-toy\n#SBATCH --nodes=2\n")
    assert shown.stdout.endswith(exported.stdout)


def test_what_belongs_to_a_cluster_is_refused_elsewhere(command: Command) -> None:
    done = command.run("export", "compose", command.toy("feeding.py"), "--nodes", "2")
    assert (done.returncode, "--nodes belongs to slurm" in done.stderr) == (2, True)
