"""`gpusched doctor` as a person has it: on hosts that are well, sick, slow and odd; in a terminal and in a pipe."""

import json
import os
import re
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpusched.control.place import control_socket
from gpusched.doctor import collect_kept
from gpusched.doctor.collect import collect
from gpusched.execution.log_cut import HEAD, cut_log
from gpusched.probe.drained import Drained, write_drained
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_S
from tests.stand_in.library import FOUR_V100, StandIn
from tests.storage.history import fill

WELL = "gpus 4\n"


def on(stand_in: StandIn, scenario: str, home: Path, **env: str) -> Command:
    host = stand_in.host(scenario).variables
    command = Command(home, host | env)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        if name not in env:
            command.env.pop(name, None)
    return command


def findings(command: Command, *, code: int) -> dict[str, dict[str, str]]:
    told = command.run("doctor", "--json")
    assert told.returncode == code, told.stdout + told.stderr
    assert told.stderr == ""
    document: dict[str, Any] = json.loads(told.stdout)
    assert all(set(each) == {"check", "state", "found", "fix"} for each in document["findings"])
    assert all(each["fix"] for each in document["findings"] if each["state"] != "ok")
    return {each["check"]: each for each in document["findings"]}


def test_a_host_that_is_well_has_no_error(stand_in: StandIn, tmp_path: Path) -> None:
    found = findings(on(stand_in, WELL, tmp_path), code=0)
    assert found["driver"]["found"] == "535.129.03, CUDA 12.2, 4 devices"
    well = ("driver", "health", "ecc", "compute-mode", "persistence-mode", "foreign-memory", "import-hook", "daemon")
    assert {name: found[name]["state"] for name in well} == dict.fromkeys(well, "ok")


def test_a_sick_host_is_told_device_by_device_and_ends_with_5(stand_in: StandIn, tmp_path: Path) -> None:
    sick = f"{FOUR_V100}set 2 compute 2\nfault nvmlDeviceGetMemoryInfo_v2 0 15\nprocess 3 C 1 700\n"
    found = findings(on(stand_in, sick, tmp_path, CUDA_VISIBLE_DEVICES="1"), code=5)
    states = {name: each["state"] for name, each in found.items()}
    assert states | {"health": "error", "ecc": "error", "compute-mode": "error"} == states
    assert states | {"persistence-mode": "warning", "visible-devices": "warning", "foreign-memory": "warning"} == states
    assert "GPU 0" in found["health"]["found"]
    assert "process 1 of " in found["foreign-memory"]["found"]


def test_a_drained_device_is_told_with_its_reason(stand_in: StandIn, tmp_path: Path) -> None:
    command = on(stand_in, WELL, tmp_path)
    command.state.mkdir()
    uuid = "GPU-cafe0001-5ca1-ab1e-0000-00000000da7a"
    write_drained(command.state, {uuid: Drained(reason="Xid 79, the GPU has fallen off the bus", since=time.time())})
    found = findings(command, code=5)["health"]
    assert "GPU 1: drained since" in found["found"]
    assert "Xid 79" in found["found"]
    assert "gpusched daemon undrain 1" in found["fix"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("nvmlInitWithFlags * 18", "do not match"), ("nvmlInitWithFlags * 4", "no permission")],
)
def test_a_driver_that_does_not_work_is_an_error(stand_in: StandIn, tmp_path: Path, fault: str, words: str) -> None:
    assert words in findings(on(stand_in, f"{WELL}fault {fault}\n", tmp_path), code=5)["driver"]["found"]


def test_a_driver_that_hangs_holds_nothing_up(stand_in: StandIn, tmp_path: Path) -> None:
    found = findings(
        on(stand_in, f"{WELL}fault nvmlInitWithFlags * sleep 600\n", tmp_path, GPUSCHED_DRIVER_PATIENCE="1"), code=5
    )
    assert "did not answer" in found["driver"]["found"]
    assert found["import-hook"]["state"] == "ok"


def test_the_doctor_waits_for_a_slow_driver_as_long_as_the_setting_says(stand_in: StandIn, tmp_path: Path) -> None:
    slow = on(stand_in, f"{WELL}fault nvmlInitWithFlags * sleep 11\n", tmp_path, GPUSCHED_DRIVER_PATIENCE="100")
    assert findings(slow, code=0)["driver"]["state"] == "ok"


def test_what_jobs_take_is_shown_and_which_logs_were_cut(stand_in: StandIn, tmp_path: Path) -> None:
    command = on(stand_in, WELL, tmp_path)
    fill(command.state, 40, 1)
    jobs = command.state / "jobs"
    with (jobs / "run-2" / "logs" / "actor.0.log").open("wb") as log:
        log.write(os.urandom(16 * HEAD))
    (jobs / "run-1" / "weights").write_bytes(os.urandom(3 * HEAD))
    os.utime(jobs / "run-1" / "status.json", (0, 0))
    (tmp_path / "treasure").mkdir()
    (tmp_path / "treasure" / "gold").write_bytes(os.urandom(9 * HEAD))
    (jobs / "run-1" / "data").symlink_to(tmp_path / "treasure")
    (jobs / "run-9").symlink_to(tmp_path / "treasure")
    cut_log(jobs / "run-2" / "logs" / "actor.0.log", 8 * HEAD)
    found = findings(command, code=0)
    room = found["room"]["found"].removeprefix("at least ")  # on a slow host it has no time for the rest
    assert room == "2 jobs: logs 5 MiB, results 3 MiB; 1 ended over 30 days ago, with 3 MiB"
    assert found["room"]["fix"].startswith("gpusched prune --older 30d --keep-results")
    assert found["logs"]["found"] == "1 log cut in the middle: run-2/actor.0 (11 MiB); each may hold 256 MiB"


def test_there_is_an_end_to_adding_up_what_very_many_jobs_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(tmp_path)
    fill(command.state, 40, 1)
    monkeypatch.setattr(collect_kept, "_LONGEST_S", -1.0)
    assert not collect_kept.kept_facts(load_settings(command.env)).whole


def test_a_daemon_that_hangs_is_told(tmp_path: Path) -> None:
    command = Command(tmp_path)
    Path(command.env["GPUSCHED_RUNTIME_DIR"]).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(os.fspath(control_socket(load_settings(command.env))))
        silent.listen()
        found = findings(command, code=5)["daemon"]
    assert "does not answer" in found["found"]
    assert "daemon stop" in found["fix"]


def test_directories_that_are_open_to_others_are_told_with_the_command_that_closes_them(tmp_path: Path) -> None:
    command = Command(tmp_path)
    runtime = Path(command.env["GPUSCHED_RUNTIME_DIR"])
    for folder in (command.state, runtime):
        folder.mkdir()
        folder.chmod(0o777)
    found = findings(command, code=5)
    assert found["state-directory"]["fix"] == f"chmod go-w {command.state}"
    assert found["runtime-directory"]["fix"] == f"chmod 700 {runtime}"
    os.system("; ".join(found[each]["fix"] for each in ("state-directory", "runtime-directory")))  # noqa: S605
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert findings(command, code=0)["state-directory"]["state"] == "ok"


def test_a_runtime_directory_too_deep_for_a_socket_is_told(tmp_path: Path) -> None:
    command = Command(tmp_path, {"GPUSCHED_RUNTIME_DIR": str(tmp_path / ("d" * 100))})
    assert "107" in findings(command, code=5)["runtime-directory"]["found"]


def test_a_configuration_that_is_wrong_is_told_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("headroom = maybe")
    found = findings(Command(tmp_path, {"GPUSCHED_CONFIG": str(config)}), code=5)
    assert str(config) in found["settings"]["found"]
    assert {"open-files", "versions", "import-hook"} <= set(found)


def test_a_drained_file_that_is_broken_is_told(stand_in: StandIn, tmp_path: Path) -> None:
    command = on(stand_in, WELL, tmp_path)
    command.state.mkdir()
    (command.state / "drained.json").write_text("{")
    assert "drained.json" in findings(command, code=5)["health"]["found"]


def test_an_interpreter_whose_startup_fails_is_told(tmp_path: Path) -> None:
    """A sitecustomize of somebody else does not keep the hook away; an interpreter that cannot start does."""
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('a broken sitecustomize')")
    env = Command(tmp_path).env
    assert collect(env | {"PYTHONPATH": str(tmp_path)}).hook == ""
    facts = collect(env | {"PYTHONHOME": str(tmp_path)})
    assert facts.hook
    assert "hook" not in facts.failed


def test_in_a_pipe_it_is_plain_text_with_words_for_marks(tmp_path: Path) -> None:
    command = Command(tmp_path)
    (tmp_path / "run").mkdir(mode=0o755)
    told = command.run("doctor")
    assert told.returncode == 5
    assert told.stdout.isascii()
    assert "\x1b" not in told.stdout
    assert re.search(r"^FAIL runtime-directory +\S+ is open to other users$", told.stdout, re.MULTILINE)
    assert re.search(r"^ +fix: chmod 700 ", told.stdout, re.MULTILINE)
    assert re.search(r"^1 error(, \d+ warnings?)?$", told.stdout.splitlines()[-1])


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_in_a_terminal_findings_keep_to_its_width_and_fixes_stay_whole(
    stand_in: StandIn, tmp_path: Path, columns: int
) -> None:
    command = on(stand_in, FOUR_V100, tmp_path)
    env = {**command.env, "PYTHONIOENCODING": "utf-8"}
    terminal = Terminal([sys.executable, "-m", "gpusched", "doctor"], env, columns=columns)
    try:
        seen = terminal.see("error\x1b[0m")
        terminal.process.wait(PATIENCE_S)
    finally:
        terminal.close()
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in seen.splitlines()]
    assert any(line.startswith("✗ ecc") for line in lines)
    assert all(len(line) <= columns for line in lines if "→" not in line)
    assert any(line.strip() == "→ sudo nvidia-smi --gpu-reset -i 1  # when nothing runs there" for line in lines)
    assert "\x1b[" in seen
