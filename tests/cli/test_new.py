"""`gpusched new`: what it writes runs, and it writes over nothing."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "gpusched" / "template"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The directory in which a person works."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def reported(command: Command, job: str) -> list[dict[str, float]]:
    path = command.state / "jobs" / job / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_what_is_written_is_launched_at_once_learns_and_ends_by_itself(command: Command, empty: Path) -> None:
    written = command.run("new", "mine", cwd=empty)
    done = command.run("launch", "mine", "--updates", "2000", cwd=empty)

    assert written.returncode == 0, written.stderr
    assert "gpusched launch mine" in written.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "weights.npz" in done.stdout
    first, *_, last = reported(command, "mine-1")
    assert (first["step"], last["step"]) == (1, 2000)
    assert last["score"] > first["score"] + 0.5


def test_the_written_test_passes_wherever_pytest_is_called_by_its_name(command: Command, empty: Path) -> None:
    command.run("new", "mine", cwd=empty)
    pytest_itself = str(Path(sys.executable).with_name("pytest"))  # `python -m pytest` would find more modules

    done = subprocess.run(
        [pytest_itself, "workloads/mine"], cwd=empty, env=command.env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_learner_that_is_killed_goes_on_from_what_it_saved(command: Command, empty: Path) -> None:
    command.run("new", "mine", cwd=empty)
    launcher = command.start("launch", "mine", "--updates", "1000000", cwd=empty)
    until(lambda: len(reported(command, "mine-1")) > 2, "it has reported and saved")

    os.kill(command.job("mine-1")["replicas"][0]["pid"], signal.SIGKILL)
    log = command.state / "jobs" / "mine-1" / "logs" / "learner.0.log"
    until(lambda: "going on after " in log.read_text(), "it goes on")
    at_the_kill = int(log.read_text().rpartition("going on after ")[2].split()[0])
    until(lambda: reported(command, "mine-1")[-1]["step"] > at_the_kill, "it learns on with the same actors")
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=PATIENCE_S)

    assert at_the_kill > 1
    assert launcher.returncode == 130, output
    assert [replica["restarts"] for replica in command.job("mine-1")["replicas"]] == [1, 0, 0]


def test_the_wheel_brings_all_that_it_takes(command: Command, empty: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
    command.env["PYTHONPATH"] = str(tmp_path / "installed")

    written = command.run("new", "mine", "--json", cwd=empty)
    done = command.run("launch", "mine", "--updates", "50", cwd=empty)

    told = json.loads(written.stdout)
    assert told["folder"] == str(empty / "workloads" / "mine")
    assert set(told["files"]) == {path.name for path in Path(told["folder"]).iterdir() if path.is_file()}
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_of_the_template_is_written_and_nothing_names_it_any_more(command: Command, empty: Path) -> None:
    command.run("new", "mine", cwd=empty)

    written = {path.name: path.read_text() for path in (empty / "workloads" / "mine").iterdir()}
    assert set(written) == {path.name for path in TEMPLATE.iterdir() if path.is_file()}
    assert "template" not in "".join(written.values())
    assert '"workloads.mine.learner"' in written["workload.toml"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Mine", "cannot be the name"),
        ("my-own", "cannot be the name"),
        ("../mine", "cannot be the name"),
        ("", "cannot be the name"),
        ("x" * 33, "cannot be the name"),
        ("class", "cannot be the name"),
        ("snake", "would hide it"),
        ("json", "would hide it from pytest"),
        ("numpy", "would hide it from pytest"),
        ("beside", "would hide it from pytest"),
        ("data", "data exists, which `gpusched launch data` would take"),
        ("taken", "workloads/taken exists"),
        ("dangling", "workloads/dangling exists"),
    ],
)
def test_a_name_that_means_something_else_already_is_refused(
    name: str, complaint: str, command: Command, empty: Path
) -> None:
    (empty / "data").mkdir()
    (empty / "beside.py").touch()
    (empty / "workloads" / "taken").mkdir(parents=True)
    (empty / "workloads" / "dangling").symlink_to("nowhere")
    before = sorted(empty.rglob("*"))

    told = command.run("new", name, cwd=empty)

    assert told.returncode == 2
    assert complaint in told.stderr
    assert "hint: " in told.stderr
    assert sorted(empty.rglob("*")) == before


def test_a_directory_that_takes_nothing_is_the_hosts_fault(command: Command, empty: Path) -> None:
    (empty / "workloads").touch()

    in_the_way = command.run("new", "mine", cwd=empty)
    not_writable = command.run("new", "mine", "--json", cwd="/proc")

    assert (in_the_way.returncode, not_writable.returncode) == (5, 5)
    assert "workloads cannot be written: File exists" in in_the_way.stderr
    assert json.loads(not_writable.stdout)["error"]["code"] == "host-fault"


def test_nothing_is_left_of_a_folder_that_cannot_be_written_whole(command: Command, empty: Path) -> None:
    line = 'ulimit -f 0; exec "$0" -m gpusched new mine'  # as on a full disk, a file can be made and not filled

    told = subprocess.run(
        ["sh", "-c", line, sys.executable], cwd=empty, env=command.env, capture_output=True, text=True, check=False
    )

    assert told.returncode == 5, told.stderr
    assert "workloads/mine cannot be written: File too large" in told.stderr
    assert not (empty / "workloads" / "mine").exists()
    assert command.run("new", "mine", cwd=empty).returncode == 0
