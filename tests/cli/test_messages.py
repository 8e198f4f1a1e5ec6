"""What a person is told who mistypes, or types what no message can hold: clear words, in one line, with a way out."""

import os
import subprocess
import sys

import pytest

from tests.cli.command import Command


@pytest.mark.parametrize(
    ("words", "told", "hint"),
    [
        (("plan", "--prcs", "3"), "No such option: --prcs", "gpusched plan --help"),
        (("plan", "--procs"), "'--procs' requires an argument", "gpusched plan --help"),
        (("daemon",), "Choose from: run, start, stop", "gpusched daemon --help"),
        (("pz",), "No such command 'pz'", "see gpusched --help"),
        (("run", "-d", "--priority", "high", "true"), "'high' is not a whole number", "gpusched run --help"),
        (("run", "-d", "--fraction", "2", "true"), "--fraction: '2' is not a fraction", "at most 1, such as 0.4"),
        (
            ("run", "-d", "--gpus", "0", "--name", "x" * 201, "true"),
            "--name: 201 characters are too many",
            "at most 200",
        ),
    ],
)
def test_wrong_usage_names_the_trouble_and_where_to_read(
    words: tuple[str, ...], told: str, hint: str, command: Command
) -> None:
    result = command.run(*words)

    assert result.returncode == 2
    message, way_out = result.stderr.splitlines()
    assert told in message
    assert hint in way_out


@pytest.mark.parametrize("name", ["", "x" * 129])
@pytest.mark.parametrize("asks", ["ps", "logs", "wait", "stop", "hold", "release"])
def test_what_can_be_no_job_is_no_job(asks: str, name: str, command: Command) -> None:
    command.daemon()
    result = command.run(asks, name)

    assert result.returncode == 4
    assert "there is no job" in result.stderr


def test_a_word_that_is_not_utf_8_is_told_and_is_no_internal_error(command: Command) -> None:
    for words in ((b"run", b"-d", b"--gpus", b"0", b"--", b"echo", b"caf\xe9"), (b"ps", b"caf\xe9")):
        argv = [os.fsencode(sys.executable), b"-m", b"gpusched", *words]
        command.daemon()
        result = subprocess.run(argv, capture_output=True, text=True, env=command.env, timeout=50, check=False)

        assert result.returncode == 2
        assert "'caf\\udce9' is not UTF-8" in result.stderr


def test_no_message_moves_the_cursor(command: Command) -> None:
    command.daemon()
    result = command.run("logs", "run\x1b[2J\n\x07")

    assert result.stderr.splitlines()[0] == "gpusched: there is no job run?[2J??"
