"""An answer that is lost, because the daemon is killed before it is out, costs no job and makes none run twice."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusched.control.client import control_socket, listener
from gpusched.settings import load_settings
from tests.cli.command import Command, until
from tests.cli.queue import jobs
from tests.stand_in.library import ROOT


@contextmanager
def mortal(command: Command) -> Iterator["subprocess.Popen[bytes]"]:
    """A daemon that is killed with the next job on disk."""
    command.state.mkdir(mode=0o700, parents=True)
    program = Path(__file__).with_name("mortal_daemon.py")
    process = subprocess.Popen([sys.executable, str(program)], env={**command.env, "PYTHONPATH": str(ROOT)})
    try:
        socket = control_socket(load_settings(command.env))
        until(lambda: listener(socket), "the daemon listens")
        yield process
        assert process.wait() == -9, "it was killed with the answer in its hands"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("moment", [(), ("--hold",)], ids=["that-may-run", "that-is-held"])
def test_a_job_whose_answer_was_lost_is_queued_once(moment: tuple[str, ...], command: Command) -> None:
    with mortal(command):
        told = command.run("run", "-d", *moment, "--num-gpus", "0", "--", "sh", "-c", "true")

    assert (told.returncode, told.stdout) == (0, "run-1\n"), told.stderr
    assert list(jobs(command)) == ["run-1"]


def test_a_command_whose_answer_was_lost_runs_once(command: Command) -> None:
    with mortal(command):
        told = command.run("run", "--num-gpus", "0", "--", "echo", "once")

    assert (told.returncode, told.stdout, told.stderr) == (0, "once\n", "")
    assert list(jobs(command)) == ["run-1"]
