"""`run --env`, `--cwd` and `--retry`: how a command runs."""

from pathlib import Path

import pytest

from tests.cli.command import Command

PRINTS = ("sh", "-c", 'echo "$LR in $PWD"')
CPU = ("--num-gpus", "0")


@pytest.mark.parametrize("detached", [False, True])
def test_a_command_has_the_variables_and_the_directory_that_are_typed(
    command: Command, tmp_path: Path, detached: bool
) -> None:
    command.env["LR"] = "outer"
    there = tmp_path / "there"
    there.mkdir()
    words = (*CPU, "--env", "LR=1e-3", "--env", "EMPTY=", "--cwd", str(there))
    if detached:
        job = command.run("run", "-d", *words, "--", *PRINTS).stdout.strip()
        assert command.run("wait", job).returncode == 0
        assert f"1e-3 in {there}\n" in command.run("logs", job).stdout
    else:
        assert command.run("run", *words, "--", *PRINTS).stdout == f"1e-3 in {there}\n"


def test_a_program_is_looked_for_from_the_directory_that_it_runs_in(command: Command, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    program = tmp_path / "there" / "program"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    told = command.run("run", *CPU, "--cwd", "there", "--", "./program", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (0, "it ran\n"), told.stderr
    assert command.run("run", *CPU, "--", "./program", cwd=tmp_path).returncode == 127


@pytest.mark.parametrize("detached", [False, True])
def test_a_program_is_found_on_the_path_that_is_typed(command: Command, tmp_path: Path, detached: bool) -> None:
    program = tmp_path / "mytool"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    words = (*CPU, "--env", f"PATH={tmp_path}:{command.env['PATH']}", "--", "mytool")
    if detached:
        job = command.run("run", "-d", *words).stdout.strip()
        assert command.run("wait", job).returncode == 0
    else:
        assert command.run("run", *words).stdout == "it ran\n"


def test_a_command_that_fails_is_started_again_so_often(command: Command, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"echo x >> {count}; test $(wc -l < {count}) -ge 3"
    job = command.run("run", "-d", *CPU, "--retry", "2", "--", "sh", "-c", script).stdout.strip()
    assert command.run("wait", job).returncode == 0
    assert count.read_text() == "x\n" * 3
    count.unlink()
    job = command.run("run", "-d", *CPU, "--retry", "1", "--", "sh", "-c", script).stdout.strip()
    assert command.run("wait", job).returncode == 1
    assert count.read_text() == "x\n" * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--env", "LR"), "--env: 'LR' has no value"),
        (("--env", "=1"), "--env: a variable needs a name"),
        (("--env", "CUDA_VISIBLE_DEVICES=1"), "--gpus"),
        (("--env", "GPUSCHED_STATE_DIR=/tmp"), "is set by gpusched itself"),
        (("--env", "X=caf\udce9"), "is no UTF-8"),
        (("--cwd", "nowhere"), "nowhere is no directory"),
        (("--retry", "2"), "--retry belongs to a command in the background"),
        (("-d", "--retry", "-1"), "--retry"),
    ],
)
def test_what_cannot_be_is_an_error_with_a_way_out(command: Command, words: tuple[str, ...], message: str) -> None:
    told = command.run("run", *CPU, *words, "--", "true")
    assert told.returncode == 2
    assert message in told.stderr


def test_a_command_in_a_terminal_is_queued_again_with_its_variables(command: Command) -> None:
    command.env["LR"] = "outer"
    assert command.run("run", *CPU, "--env", "LR=1e-3", "--", *PRINTS).returncode == 0
    again = command.run("rerun", "--last").stdout.strip()
    assert command.run("wait", again).returncode == 0
    assert "outer in " in command.run("logs", again).stdout  # of a job that has ended no variables are kept
