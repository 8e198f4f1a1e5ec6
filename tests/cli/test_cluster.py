"""`launch --engine`: what is said before anything is submitted, on a host that has no Slurm."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.engines.ray import registration
from gpusched.errors import HostFault
from tests.cli.command import Command
from tests.engines.groups import a_group


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path, env={"PATH": "/nowhere", "RAY_ADDRESS": ""})
    yield command
    command.end()


def launch(command: Command, *words: str, memory: bool = False, job: str = "") -> tuple[int, str]:
    done = command.run("launch", command.toy("feeding.py", actors=5, memory=memory, job=job), *words)
    return done.returncode, done.stdout + done.stderr


def test_a_dry_run_shows_who_will_be_where_and_the_batch_script(command: Command) -> None:
    toy = command.toy("feeding.py", actors=5, memory=False)
    done = command.run("launch", toy, "--engine", "slurm", "--nodes", "2", "--dry-run", "--site=--partition=gpu")
    assert done.returncode == 0
    assert "# would submit 6 processes on 2 nodes of slurm: learner.0 actor.0-1, actor.2-4\n" in done.stderr
    script = done.stdout
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=gpusched-toy\n#SBATCH --nodes=2\n"), "as sbatch takes it"
    assert "#SBATCH --partition=gpu\n" in script
    assert "#SBATCH --cpus-per-task=3\n" in script, "one for each process of the fullest node"


def test_as_json_a_dry_run_says_what_each_node_has(command: Command) -> None:
    code, said = launch(command, "--engine", "slurm", "--nodes", "2", "--dry-run", "--json")
    assert code == 0
    told = json.loads(said)
    assert told["engine"] == "slurm"
    assert [node["counts"] for node in told["nodes"]] == [{"learner": 1, "actor": 2}, {"learner": 0, "actor": 3}]
    assert told["nodes"][1]["first"] == {"learner": 1, "actor": 2}
    assert told["script"].startswith("#!/bin/bash")


def test_the_workload_may_name_its_engine_and_a_person_another(command: Command) -> None:
    _, said = launch(command, "--dry-run", job='engine = "slurm"')
    assert "#SBATCH" in said
    _, said = launch(command, "--dry-run", "--engine", "local", job='engine = "slurm"')
    assert "#SBATCH" not in said


def test_the_configuration_may_name_the_engine(command: Command, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('engine = "slurm"')
    command.env["GPUSCHED_CONFIG"] = str(tmp_path / "config.toml")
    _, said = launch(command, "--dry-run")
    assert "#SBATCH" in said


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--engine", "pbs"], 2, "there is no engine 'pbs'"),
        (["--nodes", "2"], 2, "--nodes belongs to a cluster"),
        (["--engine", "slurm", "--procs", "max"], 2, "only the nodes of slurm know"),
        (["--engine", "slurm", "--gpus", "0"], 2, "--gpus chooses devices of this host"),
        (["--engine", "slurm", "--machine", "cpu"], 2, "--machine chooses devices of this host"),
        (["--engine", "slurm", "--listen", "tcp://0.0.0.0:5555"], 2, "--listen is for a launch on this host"),
        (["--engine", "slurm", "--address", "x:1"], 2, "--address is where Ray is"),
        (["--engine", "slurm", "--patience", "soon"], 2, "--patience"),
        (["--engine", "ray"], 2, "which cluster of Ray?"),
        (["--engine", "ray", "--address", "ray://x:1"], 2, "ray://x:1 is no address of a cluster's head"),
        (["--engine", "ray", "--address", "x"], 2, "x is no address of a cluster's head"),
        (["--engine", "ray", "--address", "x:1", "--site=-p"], 2, "--site is for sbatch"),
        (["--engine", "slurm", "--site=-p gpu"], 2, "--site=-p gpu: is no option of sbatch"),
        (["--engine", "slurm", "--site=gpu"], 2, "--site=gpu: is no option of sbatch"),
        (["--engine", "slurm", "--insecure"], 2, "--insecure is for a launch on this host"),
        (["--engine", "slurm", "--site=--array=1-3"], 2, "--site=--array=1-3: gpusched sets that itself"),
        (["--engine", "slurm", "--site=--gres=gpu:2"], 2, "--site=--gres=gpu:2: gpusched sets that itself"),
        (["--engine", "slurm", "--site=--gres-flags=disable-binding", "--nodes", "9"], 2, "on 9 nodes leave some"),
        (["--engine", "slurm", "--nodes", "9"], 2, "6 processes on 9 nodes leave some without any"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(command: Command, words: list[str], code: int, told: str) -> None:
    assert (code, True) == ((done := launch(command, *words, "--dry-run"))[0], told in done[1]), done[1]


def test_without_slurm_it_says_where_to_launch(command: Command) -> None:
    code, said = launch(command, "--engine", "slurm", memory=True)
    assert (code, "there is no sinfo on this host" in said, "a login node" in said) == (5, True, True)
    code, said = launch(command, "--engine", "slurm")
    assert (code, "there is no sbatch on this host" in said) == (5, True)
    assert not list(command.state.glob("jobs/*")), "no job was made for it"


def give_slurm(command: Command, directory: Path, does: str) -> None:
    """Put commands of Slurm there that all do the same."""
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        (directory / name).write_text(f"#!/bin/sh\n{does}\n")
        (directory / name).chmod(0o700)
    command.env["PATH"] = f"{directory}:/bin"


def test_a_node_gives_up_its_learner_before_slurm_gives_up_the_node(command: Command, tmp_path: Path) -> None:
    give_slurm(command, tmp_path, "echo 'SlurmctldTimeout = 120 sec'; echo 'SlurmdTimeout           = 300 sec'")
    code, said = launch(command, "--engine", "slurm", "--patience", "10m")
    assert (code, "--patience 10m: Slurm gives up a node after 300 s" in said) == (2, True), said
    give_slurm(command, tmp_path, "echo 'SlurmdTimeout           = 30 sec'")
    code, said = launch(command, "--engine", "slurm", "--dry-run")
    assert (code, '"patience_s":27' in said) == (0, True), "by default it is as short as it must be"


def test_where_slurm_or_ray_does_not_answer_no_job_is_made(command: Command, tmp_path: Path) -> None:
    give_slurm(command, tmp_path, "echo 'Unable to contact slurm controller' >&2; exit 1")
    code, said = launch(command, "--engine", "slurm")
    assert (code, "scontrol: Unable to contact slurm controller" in said) == (5, True)
    with socket.create_server(("127.0.0.1", 0)) as nobodys:
        address = f"127.0.0.1:{nobodys.getsockname()[1]}"
    code, said = launch(command, "--engine", "ray", "--address", address)
    assert (code, f"Ray at {address}: " in said) == (5, True)
    assert not list(command.state.glob("jobs/*"))


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "find_spec", lambda _: None)
    with pytest.raises(HostFault) as told:
        registration.ENGINE.preflight(a_group(), None)
    assert "pip install 'ray>=2.52'" in told.value.hint


def test_nobody_guesses_how_many_gpus_a_node_of_ray_has(command: Command) -> None:
    code, said = launch(command, "--engine", "ray", "--address", "head:6379", "--dry-run", memory=True)
    assert (code, "give --gpus-per-node; with 0 no process gets one" in said) == (2, True)
