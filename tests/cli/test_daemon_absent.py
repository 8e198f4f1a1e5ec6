"""Every command that asks the daemon: without one, with one that hangs, and with one of another version."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.control.place import control_socket
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.patience import PATIENCE_S

COMMANDS = (
    ("ps",),
    ("ps", "run-1", "--why"),
    ("logs", "run-1"),
    ("logs", "-f", "run-1"),
    ("wait", "run-1"),
    ("stop", "run-1"),
    ("stop", "--all"),
    ("hold", "run-1"),
    ("release", "run-1"),
)
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


def complaints(command: Command, words: tuple[tuple[str, ...], ...]) -> str:
    """What the commands say, all at the same time, each as text and as JSON; each must be one message and code 4."""
    running = [(more, command.start(*each[:1], *more, *each[1:])) for each in words for more in ((), ("--json",))]
    said = ""
    for more, process in running:
        told, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4, told
        assert "Traceback" not in told
        if more:
            error = json.loads(told)["error"]
            assert error["code"] == "no-daemon"
            assert error["hint"]
            said += f"{error['message']}\n"
        else:
            assert told.startswith("gpusched: ")
    return said


def test_without_a_daemon_every_command_says_so_and_starts_none(command: Command) -> None:
    assert complaints(command, COMMANDS).count("no daemon runs") == len(COMMANDS)
    assert not command.running()


def test_a_daemon_that_hangs_or_is_of_another_version_is_one_message(odd: str, command: Command) -> None:
    words = {"silent": "does not answer", "older": "0.0.1", "newer": "version"}[odd]

    assert complaints(command, (*COMMANDS, STARTING[0])).count(words) >= len(COMMANDS) + 1


@pytest.mark.parametrize("odd", ["silent"], indirect=True)
def test_a_daemon_that_hangs_is_given_up_after_two_seconds(odd: str, command: Command) -> None:
    told = command.run("ps")

    assert "does not answer within 2 s" in told.stderr, odd
    assert told.returncode == 4


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
