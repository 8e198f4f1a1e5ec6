"""`gpusched plan` as a person runs it: a process of its own, its output, its exit code, and every kind of "no"."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpusched.model.device import DeviceProcess
from gpusched.probe.base import read_inventory
from gpusched.probe.saved import document_of
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"} | more


def gpusched(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpusched", "plan", *words],
        capture_output=True,
        encoding="utf-8",
        env=environment(home, **more),
        cwd=ROOT,
        check=False,
        timeout=PATIENCE_S,
    )


def as_json(home: Path, *words: str) -> Any:
    done = gpusched(home, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_home_case(tmp_path: Path) -> None:
    told = as_json(tmp_path, "--procs", "32", "--machine", "p3.8xlarge")
    assert told["counts"] == [3, 10, 10, 10]
    assert told["source"] == "profile"
    assert len(told["replicas"]) == 33
    shares = {replica["name"]: replica["share_mib"] for replica in told["replicas"]}
    for device in told["devices"]:
        planned = sum(shares[name] for name in device["replicas"])
        assert planned == device["memory_planned_mib"] <= device["memory_plannable_mib"]
    limits = {replica["limit_mib"] for replica in told["replicas"] if replica["role"] == "actor"}
    assert limits == {1133}
    assert told["replicas"][0]["name"] == "learner.0"
    assert told["replicas"][0]["fraction"] >= 0.75


def test_piped_output_is_plain_and_spells_out_the_sum(tmp_path: Path) -> None:
    done = gpusched(tmp_path, "--machine", "p3.8xlarge", COLUMNS="80")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("[3, 10, 10, 10] 33 replicas on 4 devices")
    assert "  10 × (1133 + 450) = 15830 of 15837 MiB" in lines
    assert "  (12221 + 450) + 2 × (1133 + 450) = 15837 of 15837 MiB" in lines
    bars = [line for line in lines if "learner 12221" in line or "10 actors × 1133" in line]
    assert [len(bar) for bar in bars] == [80] * 4, "four devices of one size have bars of one length"


def test_piped_output_is_ascii_where_it_must_be(tmp_path: Path) -> None:
    done = gpusched(tmp_path, "--machine", "p3.8xlarge", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "10 x (1133 + 450) = 15830 of 15837 MiB" in done.stdout


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_gets_colours_and_no_line_is_too_long(tmp_path: Path, columns: int) -> None:
    first, second = pty.openpty()
    words = [sys.executable, "-m", "gpusched", "plan", "--machine", "1x80GiB+2x24GiB", "--procs", "20"]
    more = {"TERM": "xterm-256color", "COLUMNS": str(columns)}
    with subprocess.Popen(words, stdout=second, env=environment(tmp_path, **more), cwd=ROOT) as process:
        os.close(second)
        told = b""
        while True:
            try:
                part = os.read(first, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            told += part
    os.close(first)
    assert process.returncode == 0
    assert b"\x1b[" in told
    lines = re.sub(r"\x1b\[[0-9;]*m", "", told.decode()).splitlines()
    assert max(map(len, lines)) == columns, "the bar of the largest device takes the whole width"


@pytest.mark.parametrize("machine", ["3x24GiB", "cpu"])
def test_no_line_is_too_long_with_many_roles_of_long_names(tmp_path: Path, machine: str) -> None:
    roles = "".join(
        f'[roles.{"of-a-long-name" * (i == 0)}r{i}]\ncommand = ["x"]\ncount = 3\nmemory = {{ min = "{700 + i}MiB" }}\n'
        for i in range(7)
    )
    (tmp_path / "workload.toml").write_text(f'name = "a-workload-of-many-roles"\n{roles}')
    done = gpusched(tmp_path, "--workload", str(tmp_path / "workload.toml"), "--machine", machine, COLUMNS="60")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 60
    if machine != "cpu":
        assert re.search(r"\) = \d+ of 24085 MiB", " ".join(done.stdout.split())), "what is broken is not lost"


def test_many_devices_are_drawn_once_for_all_that_are_alike(tmp_path: Path) -> None:
    done = gpusched(tmp_path, "--machine", "64x16GiB", "--procs", "600")
    assert done.stdout.startswith("[1, 33 × 10, 30 × 9] 601 replicas on 64 devices")
    assert len(done.stdout.splitlines()) < 40


def test_a_device_that_gets_nothing_says_so(tmp_path: Path) -> None:
    told = gpusched(tmp_path, "--machine", "2x16GiB", "--procs", "1", "--policy", "pack")
    assert "nothing is placed here" in told.stdout
    assert "0 = 0" not in told.stdout


def test_a_host_without_a_gpu(tmp_path: Path) -> None:
    told = as_json(tmp_path, "--machine", "cpu", "--procs", "3")
    assert (told["source"], told["counts"], told["devices"]) == ("cpu", [], [])
    assert [replica["device_uuid"] for replica in told["replicas"]] == [None] * 4
    assert "has no GPU" in gpusched(tmp_path, "--machine", "cpu").stdout


def test_options_reach_the_planner(tmp_path: Path) -> None:
    machine = ("--machine", "p3.8xlarge")
    assert len(as_json(tmp_path, *machine, "--procs", "max")["replicas"]) == 62
    chosen = as_json(tmp_path, *machine, "--gpus", "0,2", "--procs", "4")
    assert [device["index"] for device in chosen["devices"]] == [0, 2]
    rest = as_json(tmp_path, *machine, "--exclude-gpus", "0,2", "--procs", "4")
    assert [device["index"] for device in rest["devices"]] == [1, 3]
    packed = as_json(tmp_path, *machine, "--policy", "pack", "--procs", "3")
    assert packed["counts"] == [4, 0, 0, 0]
    larger = as_json(tmp_path, *machine, "--actor-memory", "1.5GiB", "--procs", "20")
    assert min(one["limit_mib"] for one in larger["replicas"] if one["role"] == "actor") >= 1536


def test_a_workload_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_text('name = "mine"\n[roles.player]\ncommand = ["{python}"]\ncount = 3\nmemory = { min = "1GiB" }\n')
    told = as_json(tmp_path, "--workload", str(file), "--machine", "2x16GiB")
    assert told["counts"] == [2, 1]


WHOLE = """name = "towers"
[roles.learner]
command = ["{python}"]
devices = 2
[roles.actor]
command = ["{python}"]
count = 4
memory = { min = "1GiB" }
"""


def test_whole_devices_are_told_and_drawn_with_sums_that_hold(tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(WHOLE)
    words = ("--workload", str(file), "--machine", "3x16GiB")
    told = as_json(tmp_path, *words)
    assert told["counts"] == [1, 1, 4]
    visible = told["replicas"][0]["env"]["CUDA_VISIBLE_DEVICES"].split(",")
    assert visible == [device["uuid"] for device in told["devices"][:2]]
    drawn = gpusched(tmp_path, *words).stdout
    limit, plannable = told["replicas"][0]["limit_mib"], told["devices"][0]["memory_plannable_mib"]
    assert f"  {limit} + 450 = {plannable} of {plannable} MiB" in drawn
    assert "learner.0: 2 whole devices, GPU 0 and 1:" in " ".join(drawn.split())


def test_a_workload_of_one_role_takes_all_devices_or_those_that_are_chosen(tmp_path: Path) -> None:
    words = ("--workload", "mnist_towers", "--machine", "p3.8xlarge")
    assert as_json(tmp_path, *words)["counts"] == [1, 1, 1, 1]
    chosen = as_json(tmp_path, *words, "--gpus", "1,3")
    assert [device["replicas"] for device in chosen["devices"]] == [["learner.0"], ["learner.0"]]
    assert "has no actors" in gpusched(tmp_path, *words, "--procs", "4").stderr


def test_the_context_comes_from_the_settings(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "gpusched" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('context = "300MiB"\nheadroom = 0\n')
    told = as_json(tmp_path, "--machine", "p3.8xlarge")
    assert {replica["context_mib"] for replica in told["replicas"]} == {300}
    assert {device["memory_plannable_mib"] for device in told["devices"]} == {16160}


LEARNER_ASKS = ("--procs", "32", "--machine", "p3.8xlarge", "--inference", "learner")


def test_actors_that_the_learner_thinks_for_have_no_device(tmp_path: Path) -> None:
    told = as_json(tmp_path, *LEARNER_ASKS)
    learner, *actors = told["replicas"]
    assert (told["counts"], len(actors)) == ([1, 0, 0, 0], 32)
    assert learner["share_mib"] == told["devices"][0]["memory_plannable_mib"], "the learner has the whole device"
    for actor in actors:
        assert (actor["device_index"], actor["device_uuid"]) == (None, None)
        assert (actor["limit_mib"], actor["context_mib"], actor["share_mib"], actor["fraction"]) == (0, 0, 0, 0)
        assert actor["env"]["CUDA_VISIBLE_DEVICES"] == ""
        assert not {name for name in actor["env"] if "MEMORY" in name or "FRACTION" in name}


def test_replicas_without_a_device_are_drawn_beside_those_with_one(tmp_path: Path) -> None:
    lines = gpusched(tmp_path, *LEARNER_ASKS, COLUMNS="80").stdout.splitlines()
    assert lines[0].startswith("[1, 0, 0, 0] 1 replica on 4 devices, 32 without a device")
    assert lines[lines.index("no device") + 1].split(maxsplit=2)[1:] == ["actor.0-31", "32 CPUs, 1 thread, no limit"]
    assert max(map(len, lines)) <= 80


def test_as_many_actors_without_a_device_as_there_are_cpus(tmp_path: Path) -> None:
    told = as_json(tmp_path, "--machine", "p3.8xlarge", "--procs", "max", "--inference", "learner")
    assert len(told["replicas"]) == len(told["replicas"][0]["cpus"]) == 32


def test_the_workloads_options_have_a_help_of_their_own(tmp_path: Path) -> None:
    done = gpusched(tmp_path, "--", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: gpusched plan ")
    assert "--inference {actor,learner}" in done.stdout


CONDITIONAL = """
    name = "mine"
    [roles.player]
    command = ["{python}"]
    memory = { min = "1GiB", unless = { UNLESS } }
    [job]
    settings = "workloads.snake.settings:Settings"
"""


def test_a_role_that_is_there_under_an_impossible_condition_is_told(tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(CONDITIONAL.replace(", unless = { UNLESS } }", ' }\n    when = { games = "8" }'))
    done = gpusched(tmp_path, "--workload", str(file), "--machine", "2x16GiB", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (2, "workload")
    assert error["message"].startswith(f"{file}: roles.player.when.games is '8': Expected `int`")


@pytest.mark.parametrize(
    ("unless", "said", "fix"),
    [
        (
            'thinks = "learner"',
            "memory.unless.thinks is no setting of workloads.snake",
            "known there: algo, network, inputs, inference",
        ),
        ('inference = "nobody"', "memory.unless.inference is 'nobody': Invalid enum value", "value that the setting"),
        ("games = -1", "memory.unless.games is -1: Expected `int` >= 0", "value that the setting can have"),
        ('games = "8"', "memory.unless.games is '8': Expected `int`", "value that the setting can have"),
    ],
)
def test_a_condition_that_no_setting_can_meet_is_told(tmp_path: Path, unless: str, said: str, fix: str) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(CONDITIONAL.replace("UNLESS", unless))
    done = gpusched(tmp_path, "--workload", str(file), "--machine", "2x16GiB", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (2, "workload")
    assert error["message"].startswith(f"{file}: roles.player.memory.unless.")
    assert said in error["message"]
    assert fix in error["hint"]


def test_a_condition_may_name_a_setting_of_an_enumeration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import enum, msgspec\n"
        "class Thinks(enum.Enum):\n    HERE = 'here'\n    THERE = 'there'\n"
        "class Settings(msgspec.Struct):\n    thinks: Thinks = Thinks.HERE\n"
    )
    file = tmp_path / "workload.toml"
    file.write_text(CONDITIONAL.replace("UNLESS", 'thinks = "there"').replace("workloads.snake.settings", "mine"))
    words, where = ("--workload", str(file), "--machine", "2x16GiB", "--json"), f"{ROOT}:{tmp_path}"
    assert json.loads(gpusched(tmp_path, *words, PYTHONPATH=where).stdout)["counts"] == [1, 0]
    told = json.loads(gpusched(tmp_path, *words, "--thinks", "there", PYTHONPATH=where).stdout)
    assert told["counts"] == [0, 0]


def test_settings_that_nothing_depends_on_are_not_imported_for_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(CONDITIONAL.replace(", unless = { UNLESS }", "").replace("workloads.snake", "no.such.module"))
    words = ("--workload", str(file), "--machine", "2x16GiB")
    assert as_json(tmp_path, *words)["counts"] == [1, 0]
    assert "no.such.module" in gpusched(tmp_path, *words, "--games", "8").stderr


def saved_status(folder: Path) -> Path:
    """Return a saved status of a host whose one GPU somebody else uses."""
    process = DeviceProcess(pid=4711, user="alice", command="python", memory_mib=15_000)
    inventory, _ = read_inventory("p3.2xlarge")
    busy = replace(inventory.devices[0], memory_used_mib=15_000, processes=(process,))
    file = folder / "saved.json"
    file.write_text(json.dumps(document_of(replace(inventory, devices=(busy,)), ())))
    return file


NO = [
    ("never fits", ("--machine", "p3.8xlarge", "--actor-memory", "20GiB"), 3, "never-fits"),
    ("never so many", ("--machine", "p3.8xlarge", "--procs", "100"), 3, "never-fits"),
    ("no device of that name", ("--machine", "p3.8xlarge", "--gpus", "9"), 2, "usage"),
    ("no GPU here", ("--machine", "cpu", "--gpus", "0"), 3, "never-fits"),
    ("no GPU to leave out", ("--machine", "cpu", "--exclude-gpus", "0"), 3, "never-fits"),
    ("unknown machine", ("--machine", "p9.huge"), 2, "usage"),
    ("no such file", ("--machine", "./no-such.json"), 2, "usage"),
    ("zero", ("--procs", "0"), 2, "usage"),
    ("negative", ("--procs", "-3"), 2, "usage"),
    ("huge", ("--procs", "10000000000000000000000"), 2, "usage"),
    ("not a number", ("--procs", "NaN"), 2, "usage"),
    ("NaN MiB", ("--actor-memory", "NaN"), 2, "usage"),
    ("no such unit", ("--learner-memory", "12 XiB"), 2, "usage"),
    ("unknown workload", ("--workload", "chess"), 2, "usage"),
    ("unknown policy", ("--policy", "fast", "--machine", "p3.8xlarge"), 2, "usage"),
    ("unknown option", ("--fast",), 2, "usage"),
    ("a word too many", ("snake",), 2, "usage"),
    ("a value that an option of the workload cannot have", ("--inference", "nobody"), 2, "usage"),
    ("an option of the workload out of range", ("--games", "-1"), 2, "usage"),
]


@pytest.mark.parametrize(("words", "code", "name"), [row[1:] for row in NO], ids=[row[0] for row in NO])
def test_every_no_is_one_message_and_an_exit_code(tmp_path: Path, words: tuple[str, ...], code: int, name: str) -> None:
    done = gpusched(tmp_path, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("gpusched: ")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2, "a message and a hint"
    told = gpusched(tmp_path, *words, "--json")
    assert told.returncode == code
    error = json.loads(told.stdout)["error"]
    assert error["code"] == name
    assert error["message"]
    assert set(error) == {"code", "message", "hint"}


def test_not_now(tmp_path: Path) -> None:
    words = ("--machine", str(saved_status(tmp_path)), "--procs", "4")
    done = gpusched(tmp_path, *words)
    assert done.returncode == 3
    assert "do not fit on GPU 0 now" in done.stderr
    assert "pid 4711 (alice, python) holds 15000 MiB on GPU 0" in done.stderr
    assert json.loads(gpusched(tmp_path, *words, "--json").stdout)["error"]["code"] == "not-now"


@pytest.mark.parametrize("devices", [8, 40])
def test_a_first_line_that_is_longer_than_a_narrow_terminal_is_folded(tmp_path: Path, devices: int) -> None:
    words = ("--workload", "averaging", "--machine", f"{devices}x80GiB")
    shown = gpusched(tmp_path, *words, COLUMNS="60").stdout
    assert max(map(len, shown.splitlines())) <= 60
    assert f"averaging on {devices}x80GiB (simulated)" in " ".join(shown.split())
