"""`gpusched launch`, as a real process with real supervisors and replicas."""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from gpusched.leases.directory import LeaseDirectory
from tests.cli.command import TOYS, Command
from tests.patience import PATIENCE_S, until

P3 = ("--machine", "p3.8xlarge")


def told_by(command: Command, job: str = "toy-1") -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (command.state / "jobs" / job).glob("*.told")}


def everything_runs(command: Command, job: str = "toy-1") -> bool:
    replicas = command.job(job).get("replicas", [])
    return bool(replicas) and all(replica["state"] == "running" for replica in replicas)


def test_33_processes_hold_what_the_plan_said(command: Command) -> None:
    command.env["TOY_EXPECTS"] = "33"
    workload = command.toy("until_all_told.py", actors=32)

    done = command.run("launch", workload, *P3)

    planned = json.loads(command.run("plan", "--workload", workload, *P3, "--json").stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert planned["counts"] == [3, 10, 10, 10]
    told = told_by(command)
    assert set(told) == {replica["name"] for replica in planned["replicas"]}
    assert len({one["pid"] for one in told.values()}) == 33
    for replica in planned["replicas"]:
        env = told[replica["name"]]["env"]
        assert replica["env"].items() <= env.items()
        assert env["CUDA_VISIBLE_DEVICES"] == replica["device_uuid"]
        assert env["GPUSCHED_MEMORY_LIMIT_MIB"] == str(replica["limit_mib"])
        assert (env["GPUSCHED_JOB"], env["GPUSCHED_REPLICA"]) == ("toy-1", replica["name"])
    until(lambda: not command.running(), "no process left")


def test_a_replica_runs_on_the_cpus_of_its_plan_that_this_host_has(command: Command) -> None:
    command.env["TOY_EXPECTS"] = "3"

    command.run("launch", command.toy("until_all_told.py"), *P3)

    assert all(set(one["cpus"]) <= os.sched_getaffinity(0) for one in told_by(command).values())


def test_simulated_devices_are_marked_wherever_they_are_shown(command: Command) -> None:
    launcher = command.start("launch", command.toy("for_ever.py"), *P3)
    until(lambda: everything_runs(command), "all replicas run")

    status = command.run("status")
    launcher.send_signal(signal.SIGINT)

    assert "p3.8xlarge (simulated)" in (launcher.stdout.read() if launcher.stdout else "")
    assert "(simulated)" in status.stdout
    assert command.job()["simulated"] is True


def test_ctrl_c_stops_the_job_and_says_where_the_logs_are(command: Command) -> None:
    launcher = command.start("launch", command.toy("for_ever.py"))
    until(lambda: everything_runs(command), "all replicas run")

    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=PATIENCE_S)

    assert launcher.returncode == 130
    assert f"logs:    {command.state}/jobs/toy-1/logs" in output
    assert "toy-1 cancelled" in output
    assert {replica["exit"]["kind"] for replica in command.job()["replicas"]} == {"stopped"}
    assert not command.running()


@pytest.mark.parametrize("victim", ["launcher", "supervisor", "everything at once"])
def test_no_process_outlives_the_death_of(victim: str, command: Command) -> None:
    launcher = command.start("launch", command.toy("for_ever.py", actors=4), "--procs", "4")
    until(lambda: everything_runs(command), "all replicas run")
    supervisor = command.job()["supervisor_pid"]

    if victim in ("launcher", "everything at once"):
        launcher.kill()
    if victim in ("supervisor", "everything at once"):
        os.kill(supervisor, signal.SIGKILL)

    until(lambda: not [pid for pid in command.running() if pid != launcher.pid], "no process left")
    output, _ = launcher.communicate(timeout=PATIENCE_S)
    if victim == "supervisor":
        assert launcher.returncode == 1
        assert "toy-1 lost" in output


def test_a_killed_actor_comes_back_and_the_others_go_on(command: Command) -> None:
    launcher = command.start("launch", command.toy("for_ever.py", actors=3), "--procs", "3")
    until(lambda: everything_runs(command), "all replicas run")
    before = {replica["name"]: replica["pid"] for replica in command.job()["replicas"]}

    os.kill(before["actor.1"], signal.SIGKILL)
    until(lambda: command.job()["replicas"][2]["restarts"] == 1 and everything_runs(command), "actor.1 is back")

    after = {replica["name"]: replica["pid"] for replica in command.job()["replicas"]}
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=PATIENCE_S)
    assert {name for name in before if before[name] != after[name]} == {"actor.1"}


def test_a_failed_job_shows_the_end_of_the_log_and_exits_with_1(command: Command) -> None:
    done = command.run("launch", command.toy("fails.py"))

    assert done.returncode == 1
    assert "learner.0: crashed with code 3" in done.stdout
    assert "| the data set is missing" in done.stdout


def test_json_prints_only_the_ended_job(command: Command) -> None:
    command.env["TOY_EXPECTS"] = "3"

    done = command.run("launch", command.toy("until_all_told.py"), "--json")

    job = json.loads(done.stdout)
    assert (job["id"], job["state"]) == ("toy-1", "succeeded")
    assert {"name", "state", "pid", "device_index", "limit_mib", "used_mib", "restarts"} <= set(job["replicas"][0])


def test_a_missing_framework_is_told_before_anything_starts(command: Command) -> None:
    done = command.run("launch", command.toy("for_ever.py", job='preload = ["no_such_framework"]'))

    assert done.returncode == 5
    assert "needs no_such_framework, which is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (command.state / "jobs").exists()


def test_a_missing_tensorflow_says_how_to_install_it(command: Command, tmp_path: Path) -> None:
    hide = tmp_path / "hide" / "sitecustomize.py"
    hide.parent.mkdir()
    hide.write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tensorflow': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    command.env["PYTHONPATH"] = str(hide.parent)

    done = command.run("launch", "snake", "--procs", "1")

    assert done.returncode == 5
    assert "pip install '.[tensorflow]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--colour", "blue"), "blue"),
        (("--legs", "0"), "legs"),
        (("--legs", "many"), "legs"),
        (("--wings", "2"), "--wings"),
    ],
)
def test_a_wrong_workload_option_is_told_before_anything_starts(
    words: tuple[str, ...], complaint: str, command: Command
) -> None:
    command.env["PYTHONPATH"] = str(TOYS)

    done = command.run("launch", command.toy("for_ever.py", job='settings = "options:Settings"'), *words)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (command.state / "jobs").exists()


def test_a_workloads_own_options_are_listed(command: Command) -> None:
    command.env["PYTHONPATH"] = str(TOYS)

    done = command.run("launch", command.toy("for_ever.py", job='settings = "options:Settings"'), "--", "--help")

    assert done.returncode == 0
    assert re.search(r"--legs LEGS\s+how many legs it has \(default: 4\)", done.stdout)
    assert "--colour {green,red}" in done.stdout


def test_options_reach_every_replica(command: Command) -> None:
    command.env |= {"PYTHONPATH": str(TOYS), "TOY_EXPECTS": "3"}
    workload = command.toy("until_all_told.py", job='settings = "options:Settings"')

    command.run("launch", workload, "--colour", "green", "--loud")

    settings = {name: json.loads(told["env"]["GPUSCHED_SETTINGS"]) for name, told in told_by(command).items()}
    chosen = {"colour": "green", "legs": 4, "loud": True}
    assert settings == {"learner.0": chosen, "actor.0": chosen, "actor.1": chosen}


def test_a_command_that_leaves_out_the_import_hook_is_warned_of_where_there_is_a_limit(command: Command) -> None:
    command.env["TOY_EXPECTS"] = "2"
    with_option = Path(command.toy("until_all_told.py", actors=1))
    limited = command.run("launch", str(with_option), *P3).stdout
    without_devices = command.run("launch", command.toy("until_all_told.py", actors=1, memory=False)).stdout
    command.toy("until_all_told.py", actors=1)
    with_option.write_text(with_option.read_text().replace('"-S", ', ""))
    hooked = command.run("launch", str(with_option), *P3).stdout
    assert re.findall(r"command of role (\w+) has python's -I, -E or -S", limited) == ["learner", "actor"]
    assert "command of role" not in without_devices + hooked


def test_a_socket_path_that_is_too_long_is_told_before_anything_starts(command: Command, tmp_path: Path) -> None:
    command.env["GPUSCHED_RUNTIME_DIR"] = str(tmp_path / ("deep" * 25))

    done = command.run("launch", command.toy("for_ever.py"))

    assert done.returncode == 2
    assert "paths of over 107 bytes" in done.stderr
    assert not (command.state / "jobs").exists()


def test_a_settings_module_that_breaks_is_told_with_its_workload(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken_settings.py").write_text("1 / 0")
    command.env["PYTHONPATH"] = str(tmp_path)

    done = command.run("launch", command.toy("for_ever.py", job='settings = "broken_settings:Settings"'))

    assert done.returncode == 2
    assert "workload.toml: job.settings: 'broken_settings:Settings': division by zero" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("launch", "x" * 300), ("plan", "--workload", "x" * 300 + "/workload.toml"), ("plan", "--machine", "x" * 300)],
    ids=["name", "path", "machine"],
)
def test_a_name_longer_than_a_file_system_takes_is_wrong_usage(words: tuple[str, ...], command: Command) -> None:
    done = command.run(*words)

    assert done.returncode == 2, done.stderr
    assert "internal error" not in done.stderr


def test_launch_returns_when_the_directory_of_its_job_is_removed(command: Command) -> None:
    launcher = command.start("launch", command.toy("for_ever.py"))
    assert launcher.stdout is not None
    assert any(line.startswith("logs: ") for line in launcher.stdout)
    until(lambda: everything_runs(command), "all replicas run")

    shutil.rmtree(command.state / "jobs" / "toy-1")
    output, _ = launcher.communicate(timeout=PATIENCE_S)

    assert "toy-1 lost: " in output
    until(lambda: not command.running(), "no process left")


def test_two_launches_on_a_simulated_machine_do_not_get_the_same_memory(command: Command) -> None:
    half = ("--machine", "1x8GiB", "--procs", "1", "--actor-memory", "3GiB")
    workload = command.toy("for_ever.py")
    first = command.start("launch", workload, *half)
    until(lambda: everything_runs(command), "all replicas run")

    refused = command.run("launch", workload, *half, "--json")
    planned = command.run("plan", "--workload", workload, *half, "--json")
    first.kill()
    first.wait()
    until(lambda: not command.running(), "no process left")
    again = command.start("launch", workload, *half)
    until(lambda: everything_runs(command, "toy-2"), "the memory of a killed launch is free")
    again.send_signal(signal.SIGINT)
    again.wait(PATIENCE_S)

    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"]["code"] == "not-now"
    assert planned.returncode == 0, "plan --machine plans for an idle machine"


def test_ctrl_c_ends_a_launch_that_waits_for_another_one(command: Command) -> None:
    with LeaseDirectory(command.home / "leases").locked():
        waiting = command.start("launch", command.toy("for_ever.py"))
        until(lambda: asks_for_the_lock(waiting.pid), "it waits for the lock")

        waiting.send_signal(signal.SIGINT)

        assert waiting.wait(PATIENCE_S) == 130
        assert list((command.state / "jobs").glob("*")) == []


def asks_for_the_lock(pid: int) -> bool:
    """The lock is tried again and again, with the file open in between."""
    try:
        return "lock" in {entry.readlink().name for entry in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:  # one that was closed in this moment
        return False


def test_settings_may_refuse_what_their_types_allow(command: Command) -> None:
    told = command.run("launch", "snake", "--weights", "/no/such/weights.npz")

    assert told.returncode == 2
    assert "--weights: there is no file /no/such/weights.npz" in told.stderr
    assert not (command.state / "jobs").exists()


def test_a_workload_beside_the_ones_that_gpusched_brings_is_found_and_hides_none(
    command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere" / "workloads" / "mine"
    folder.mkdir(parents=True)
    (folder / "learner.py").write_text("print('my own learner')")
    (folder / "workload.toml").write_text(
        '[roles.learner]\ncommand = ["{python}", "-m", "workloads.mine.learner"]\n[job]\nleader = "learner"\n'
    )

    mine = command.run("launch", "mine", cwd=folder.parent.parent)
    snake = command.run("launch", "snake", "--", "--help", cwd=folder.parent.parent)

    assert mine.returncode == 0, mine.stdout + mine.stderr
    assert "my own learner" in (command.state / "jobs" / "mine-1" / "logs" / "learner.0.log").read_text()
    assert "--network" in snake.stdout


def test_a_runtime_directory_that_others_can_enter_is_refused_before_anything_starts(command: Command) -> None:
    (command.home / "run").mkdir(mode=0o755)
    (command.home / "run").chmod(0o755)

    told = command.run("launch", command.toy("for_ever.py"))

    assert told.returncode == 5
    assert told.stderr.startswith(f"gpusched: {command.home / 'run'} is open to other users\n")
    assert "GPUSCHED_RUNTIME_DIR" in told.stderr
    assert not (command.state / "jobs").exists()


def test_why_a_process_is_started_again_is_shown_by_the_last_line_that_it_wrote(command: Command) -> None:
    script = "printf 'loading\\r\\033[31mno such \\007 data\\033[0m\\n\\n' >&2; exit 3"
    workload = command.home / "workload.toml"
    workload.write_text(
        f"""name = "toy"
[roles.learner]
command = ["sh", "-c", {json.dumps(script)}]
restart = {{ policy = "on-failure", max = 1 }}
"""
    )

    told = command.run("launch", str(workload))

    assert told.returncode == 1
    assert told.stdout.count("(crashed with code 3: no such ? data)") == 2
    assert not {"\x1b", "\x07"} & set(told.stdout), "nor do the last lines of the log move a cursor"
    assert "toy-1 failed" in told.stdout
    assert command.job()["replicas"][0]["exit"]["message"] == "no such ? data"


@pytest.mark.parametrize("way", [(), ("-d",), ("--dry-run",)], ids=["here", "queued", "dry-run"])
def test_a_command_that_is_no_program_is_refused_before_anything_starts(way: tuple[str, ...], command: Command) -> None:
    workload = command.home / "workload.toml"
    workload.write_text('name = "toy"\n[roles.learner]\ncommand = ["nosuchprog", "--all"]\n')

    told = command.run("launch", *way, str(workload))

    assert told.returncode == 5
    assert "'nosuchprog', the command of its role learner, is no program of this host" in told.stderr
    assert str(workload) in told.stderr
    assert not (command.state / "jobs").exists()


def test_a_program_with_braces_in_its_name_is_found(command: Command) -> None:
    program = command.home / "{mine}"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    workload = command.home / "workload.toml"
    workload.write_text(f'name = "toy"\n[roles.learner]\ncommand = ["{command.home}/{{{{mine}}}}"]\n')

    assert command.run("launch", str(workload)).returncode == 0


def test_a_program_that_vanishes_before_its_start_is_not_tried_again(command: Command) -> None:
    program = command.home / "once"
    program.write_text(f"#!/bin/sh\nrm {program}\nexit 3\n")
    program.chmod(0o700)
    workload = command.home / "workload.toml"
    workload.write_text(f'name = "toy"\n[roles.learner]\ncommand = ["{program}"]\n')

    told = command.run("launch", str(workload))

    assert told.returncode == 1
    (learner,) = command.job()["replicas"]
    assert (learner["exit"]["kind"], learner["restarts"]) == ("spawn-failed", 1)


def test_nothing_is_left_in_the_runtime_directory(command: Command) -> None:
    runtime = command.home / "run"
    socket = TOYS / "leaves_a_socket.py"

    done = command.run("launch", command.toy(socket.name))

    assert done.returncode == 1
    assert [path.name for path in runtime.iterdir()] == []
    assert [path.name for path in (command.home / "leases").iterdir()] == ["lock"]
