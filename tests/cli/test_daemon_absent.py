"""Every command that asks the daemon: without one, with one that hangs, and with one of another version."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.control.place import control_socket
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.cli.queue import queue
from tests.patience import PATIENCE_S, until

READING = (("ps", "run-1", "--why"), ("logs", "run-1"), ("logs", "-f", "run-1"))
CHANGING = (("wait", "run-1"), ("stop", "run-1"), ("hold", "run-1"), ("release", "run-1"))
STARTING = (("run", "-d", "--num-gpus", "0", "--", "true"), ("run", "--num-gpus", "0", "--", "true"))


@pytest.fixture(params=["silent", "older", "newer"])
def odd(request: pytest.FixtureRequest, command: Command) -> Iterator[str]:
    """A daemon that is of no use."""
    (command.home / "run").mkdir(mode=0o700)
    path = control_socket(load_settings(command.env))
    script = Path(__file__).parent / "odd_daemon.py"
    argv = [sys.executable, str(script), str(path), request.param]
    env = {**command.env, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        yield request.param
        process.kill()


def complaints(command: Command, words: tuple[tuple[str, ...], ...], code: str = "no-daemon") -> str:
    """What the commands say, all at the same time, each as text and as JSON; each must be one message and code 4."""
    running = [(more, command.start(*each[:1], *more, *each[1:])) for each in words for more in ((), ("--json",))]
    said = ""
    for more, process in running:
        told, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4, told
        assert "Traceback" not in told
        if more:
            error = json.loads(told)["error"]
            assert error["code"] == code
            assert error["hint"]
            said += f"{error['message']}\n"
        else:
            assert told.startswith("gpusched: ")
    return said


def test_where_there_has_been_no_job_every_command_knows_it_and_starts_no_daemon(command: Command) -> None:
    assert complaints(command, (*READING, *CHANGING), "not-found").count("no job run-1") == 7
    assert command.run("ps").stdout == "no job runs or waits, and none has ended lately\n"
    assert json.loads(command.run("ps", "--json").stdout) == {"jobs": []}
    assert command.run("stop", "--all").stdout == "no job runs or waits\n"
    assert not command.running()


def test_a_daemon_that_hangs_or_is_of_another_version_is_one_message(odd: str, command: Command) -> None:
    words = {"silent": "does not answer", "older": "0.0.1", "newer": "version"}[odd]
    (command.state / "jobs" / "run-1").mkdir(parents=True)

    assert complaints(command, (*CHANGING, STARTING[0])).count(words) >= len(CHANGING) + 1


def test_beside_a_daemon_of_no_use_the_job_directories_are_shown(odd: str, command: Command) -> None:
    assert command.run("launch", command.toy("fails.py")).returncode == 1, odd

    listed = command.run("ps")
    assert listed.returncode == 0
    assert "toy-1  failed" in listed.stdout
    assert command.run("logs", "toy-1").returncode == 0
    assert command.run("ps", "toy-2").returncode == 4


def test_a_launch_in_the_foreground_is_read_followed_and_stopped_from_another_terminal(command: Command) -> None:
    launch = command.start("launch", command.toy("for_ever.py"))
    until(lambda: command.job().get("state") == "running", "the launch runs")

    assert "toy-1  running" in command.run("ps").stdout
    assert command.run("logs", "toy-1").returncode == 0
    assert command.run("ps").stderr == ""
    assert not (command.state / "gpusched.db").exists()

    told = command.run("stop", "toy-1")

    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("toy-1 cancelled")
    launch.communicate(timeout=PATIENCE_S)
    assert launch.returncode == 130


@pytest.mark.parametrize("words", [("wait",), ("stop",), ("logs", "-f")], ids=lambda words: words[0])
def test_after_a_kill_of_the_daemon_what_it_had_started_is_still_there(
    words: tuple[str, ...], command: Command
) -> None:
    gate = command.home / "gate"
    script = f"echo begun; while ! test -e {gate}; do sleep 0.05; done; exit 3"
    name = queue(command, "--num-gpus", "0", "--", "sh", "-c", script)
    until((command.state / "jobs" / name / "logs" / "command.0.log").exists, "it runs")
    held = queue(command, "--hold", "--num-gpus", "0", "--", "true")
    os.kill(command.daemon(), signal.SIGKILL)

    listed = command.run("ps", "--json")
    assert {job["id"]: job["state"] for job in json.loads(listed.stdout)["jobs"]} == {name: "running", held: "queued"}
    assert "no daemon runs" in listed.stderr
    assert command.run("ps", held).returncode == 0
    assert command.run("logs", name).stdout.endswith("begun\n")
    assert command.run("ps", "run-9").returncode == 4

    asking = command.start(*words, name)
    gate.touch()
    told, _ = asking.communicate(timeout=PATIENCE_S)

    assert asking.returncode == {"wait": 1, "stop": 0, "logs": 0}[words[0]], told
    assert f"{name} " in told


def test_a_queued_job_can_be_held_and_stopped_after_a_kill_of_the_daemon(command: Command) -> None:
    name = queue(command, "--hold", "--num-gpus", "0", "--", "true")
    for words in (("release", name), ("wait", name)):
        os.kill(command.daemon(), signal.SIGKILL)
        told = command.run(*words)
        assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("odd", ["silent"], indirect=True)
def test_a_daemon_that_hangs_is_given_up_after_ten_seconds(odd: str, command: Command) -> None:
    (command.state / "jobs" / "run-1").mkdir(parents=True)

    told = command.run("wait", "run-1")

    assert "does not answer within 10 s" in told.stderr, odd
    assert told.returncode == 4
    assert command.run("ps").returncode == 0


def test_run_in_the_foreground_says_it_on_stderr_alone(odd: str, command: Command) -> None:
    told = command.run(*STARTING[1])

    assert (told.returncode, told.stdout) == (4, "")
    assert "daemon" in told.stderr, odd


@pytest.mark.parametrize("option", [("-d",), ()], ids=["detached", "attached"])
def test_run_starts_a_daemon_where_there_is_none(option: tuple[str, ...], command: Command) -> None:
    told = command.run("run", *option, "--num-gpus", "0", "--", "echo", "hello")

    assert told.returncode == 0, told.stderr
    assert told.stdout == ("run-1\n" if option else "hello\n")
    assert command.run("wait", "run-1").stdout.startswith("run-1 succeeded")


def test_a_job_that_was_cancelled_before_it_started_is_not_shown_to_wait_without_a_daemon(command: Command) -> None:
    stopped = queue(command, "--hold", "--num-gpus", "0", "--name", "mine", "--", "true")
    after = queue(command, "--after", stopped, "--num-gpus", "0", "--", "true")
    assert command.run("stop", stopped).returncode == 0
    assert command.run("wait", after).returncode == 1
    os.kill(command.daemon(), signal.SIGKILL)

    listed = json.loads(command.run("ps", "--all", "--json").stdout)["jobs"]
    assert {job["id"]: job["state"] for job in listed} == {stopped: "cancelled", after: "cancelled"}
    assert command.run("ps", stopped).stdout.count("cancelled") == 1
    assert json.loads(command.run("status", "--json").stdout)["jobs"] == []


def test_what_is_no_job_in_the_directory_of_the_jobs_is_not_shown_to_wait(command: Command) -> None:
    held = queue(command, "--hold", "--num-gpus", "0", "--", "true")
    os.kill(command.daemon(), signal.SIGKILL)
    (command.state / "jobs" / "notes.txt").write_text("mine")
    (command.state / "jobs" / "elsewhere").symlink_to(command.home)

    assert [job["id"] for job in json.loads(command.run("ps", "--json").stdout)["jobs"]] == [held]
    assert command.run("ps", "notes.txt").returncode == 4


def test_a_pipe_in_the_place_of_the_daemons_log_is_an_error_that_names_it(command: Command) -> None:
    command.state.mkdir(mode=0o700)
    os.mkfifo(command.state / "daemon.log")

    told = command.run("daemon", "start")

    assert told.returncode == 5
    assert str(command.state / "daemon.log") in told.stderr
