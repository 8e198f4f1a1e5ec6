"""`gpusched wait`: it returns when jobs have ended, and its exit code says how."""

import json
import os
import signal

from tests.cli.command import Command
from tests.cli.queue import SLEEP, queue, until_state
from tests.patience import PATIENCE_S


def test_code_0_if_all_succeeded_1_if_one_did_not_4_if_there_is_none(command: Command) -> None:
    good = queue(command, "--num-gpus", "0", "--", "true")
    bad = queue(command, "--num-gpus", "0", "--", "sh", "-c", "exit 3")

    told = command.run("wait", good, bad)

    assert told.returncode == 1
    assert sorted(line.split(" after ")[0] for line in told.stdout.splitlines()) == [
        f"{good} succeeded",
        f"{bad} failed: code 3",
    ]
    assert command.run("wait", good).returncode == 0
    assert command.run("wait", good, "run-9").returncode == 4
    assert json.loads(command.run("wait", bad, "--json").stdout)["jobs"][0]["replicas"][0]["exit"]["code"] == 3


def test_when_the_time_is_up_it_says_what_goes_on(command: Command) -> None:
    name = queue(command, *SLEEP)
    until_state(command, name, "running")

    told = command.run("wait", name, "--timeout", "1")

    assert told.returncode == 1
    assert f"{name} is running" in told.stderr
    assert command.run("wait", name, "--timeout", "0").returncode == 1
    assert command.run("wait", name, "--timeout", "soon").returncode == 2


def test_it_survives_a_restart_of_the_daemon(command: Command) -> None:
    name = queue(command, *SLEEP)
    until_state(command, name, "running")
    first = queue(command, "--num-gpus", "0", "--", "true")
    waiting = command.start("wait", name, first)
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith(f"{first} succeeded")

    for _ in range(2):
        os.kill(command.daemon(), signal.SIGKILL)
    command.daemon()
    command.run("stop", name, "--no-wait")

    said, _ = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 1
    assert said.startswith(f"{name} cancelled")


def test_ctrl_c_ends_the_waiting_alone(command: Command) -> None:
    name = queue(command, *SLEEP)
    until_state(command, name, "running")
    first = queue(command, "--num-gpus", "0", "--", "true")
    waiting = command.start("wait", name, first)
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith(f"{first} succeeded"), "now it waits for the other"
    waiting.send_signal(signal.SIGINT)

    said, _ = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, said) == (130, "")
    until_state(command, name, "running")
