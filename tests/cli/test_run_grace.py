"""A program behind a wrapper saves its work, however its job ends: stop, time limit, Ctrl-C, a signal, no daemon."""

import contextlib
import functools
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusched.linux.processes import parent
from tests.cli.command import Command
from tests.cli.foreground import FREE, running
from tests.cli.queue import GPUSCHED, jobs, queue, until_state
from tests.patience import PATIENCE_S, until
from tests.supervisor.specs import python

LONG = ("--grace", "60s")


QUITTER = "import signal, subprocess, sys; signal.signal(2, signal.SIG_DFL); subprocess.call(['sh', sys.argv[1]])"
WRAPPERS = {"bash": ("bash",), "dash": ("dash",), "quitter": (sys.executable, "-S", "-c", QUITTER)}
"""The last one ends at once by Ctrl-C, where a shell waits for its program."""


class Saver:
    """A program in a script that saves when it is asked to, until the test lets it end."""

    def __init__(self, home: Path, wrapper: str, *words: str) -> None:
        self.place = home / "saver"
        self.place.mkdir()
        script = self.place / "wrap.sh"
        script.write_text(f"{' '.join((*python('saver.py'), str(self.place), '1', *words))}\necho on\n")
        self.command = ("--", *WRAPPERS[wrapper], str(script))

    def wait_for(self, what: str) -> None:
        until((self.place / f"{what}-1").exists, f"the program is {what}")

    def save(self) -> None:
        self.wait_for("asked")
        (self.place / "release").touch()
        self.wait_for("saved")
        assert not (self.place / "second-1").exists(), "a second signal aborts what the first one has it save"


@pytest.fixture(params=WRAPPERS)
def saver(command: Command, request: pytest.FixtureRequest) -> Saver:
    return Saver(command.home, request.param)


def test_stop(command: Command, saver: Saver) -> None:
    queue(command, *FREE[1:], *LONG, *saver.command)
    saver.wait_for("ready")

    command.run("stop", "--no-wait", "run-1")
    saver.wait_for("asked")
    until_state(command, "run-1", "stopping")
    saver.save()

    until_state(command, "run-1", "cancelled")
    assert jobs(command)["run-1"]["message"] == "stopped by gpusched stop"
    assert "--- command.0: stopped by gpusched stop ---" in command.run("logs", "run-1").stdout


def test_a_time_limit(command: Command, saver: Saver) -> None:
    queue(command, *FREE[1:], *LONG, "--time-limit", "10s", *saver.command)

    saver.save()

    until_state(command, "run-1", "failed")
    assert "--- command.0: its time limit of 10 s is over ---" in command.run("logs", "run-1").stdout


def test_ctrl_c(saver: Saver, terminal: Any) -> None:
    window = terminal(*GPUSCHED, *FREE, *LONG, *saver.command)
    saver.wait_for("ready")

    window.type(b"\x03")
    saver.wait_for("asked")
    assert window.process.poll() is None
    saver.save()

    assert window.process.wait(PATIENCE_S) in (0, 130)  # a shell goes on where its program ended in peace


def test_a_second_ctrl_c_kills_what_a_command_that_has_ended_left(command: Command, terminal: Any) -> None:
    saver = Saver(command.home, "quitter", "patient")
    window = terminal(*GPUSCHED, *FREE, *LONG, *saver.command)
    saver.wait_for("ready")

    window.type(b"\x03")
    saver.wait_for("asked")
    until(lambda: command.job("run-1")["replicas"][0]["state"] == "stopping", "the wrapper has ended")
    window.type(b"\x03")

    assert window.process.wait(PATIENCE_S) == 130
    assert not (saver.place / "saved-1").exists()


def test_a_signal_to_the_command_line_alone(command: Command, saver: Saver) -> None:
    """Without gpusched it would end the shell, and its program would go on; here it is asked to end, too."""
    with running(command, *FREE, *LONG, *saver.command) as process:
        saver.wait_for("ready")
        process.terminate()
        saver.save()

        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_a_signal_to_the_whole_group(command: Command, saver: Saver) -> None:
    with running(command, *FREE, *LONG, *saver.command, process_group=0) as process:
        saver.wait_for("ready")
        os.killpg(process.pid, signal.SIGTERM)
        saver.save()

        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def behind_a_script(inner: str) -> tuple[str, ...]:
    return ("sh", "-c", f"{inner}; echo on")


def behind_a_run_that_stands_in_its_place(inner: str) -> tuple[str, ...]:
    return (*GPUSCHED, *FREE, *LONG, "--", "sh", "-c", f"{inner}; echo on")


@pytest.mark.parametrize("outer", [behind_a_script, behind_a_run_that_stands_in_its_place])
@pytest.mark.parametrize("detached", [True, False], ids=["run -d", "run"])
def test_a_stop_of_the_job_around_it(outer: Callable[[str], tuple[str, ...]], detached: bool, command: Command) -> None:
    """The outer job's supervisor signals all of a session: who stands for the inner command passes nothing on."""
    saver = Saver(command.home, "bash")
    inner = (*GPUSCHED, *FREE, *LONG, "--", *python("saver.py"), str(saver.place), "1")
    words = (*LONG, "--", *outer(shlex.join(inner)))
    process = running(command, *FREE, *words) if not detached else contextlib.nullcontext()
    if detached:
        queue(command, *FREE[1:], *words)
    with process:
        saver.wait_for("ready")
        command.run("stop", "--no-wait", "run-1")
        saver.wait_for("asked")
        all_signals_taken(saver)
        saver.save()

        until_state(command, "run-1", "cancelled")


def all_signals_taken(saver: Saver) -> None:
    """Each command line has done what it does about a SIGTERM: of two signals, it takes that of the lower number first.

    The one of the higher number is of no harm to anything that it passes it on to.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = _words(int(entry.name))
            if not _is_command_line(words, saver) or _is_command_line(_words(parent(int(entry.name)) or 0), saver):
                continue  # a command line forks one that only gets the signals of its group
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGWINCH)
                until(functools.partial(_has_taken, entry / "status", signal.SIGWINCH), "it has been taken")


def _words(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def _is_command_line(words: list[str], saver: Saver) -> bool:
    return words[1:4] == [*GPUSCHED[1:], "run"] and str(saver.place) in " ".join(words)


def _has_taken(status: Path, number: int) -> bool:
    with contextlib.suppress(OSError):
        pending = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("ShdPnd:")]
        return not int(pending[0], 16) >> (number - 1) & 1
    return True


def test_a_signal_to_the_whole_group_reaches_the_command_once(command: Command) -> None:
    """It does so from the shell already: the command line, which has it as well, must not pass it on."""
    saver = Saver(command.home, "bash")
    program = ("--", *python("saver.py"), str(saver.place), "1")
    with running(command, *FREE, *LONG, *program, process_group=0) as process:
        saver.wait_for("ready")
        until(lambda: command.job("run-1")["replicas"][0]["pid"], "the status shows it")
        os.killpg(process.pid, signal.SIGTERM)
        saver.wait_for("asked")
        all_signals_taken(saver)
        saver.save()

        assert process.wait(PATIENCE_S) == 0


def end_in_order(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [end_in_order, kill])
def test_the_end_of_the_daemon(command: Command, end: Callable[[int], None]) -> None:
    saver = Saver(command.home, "bash")
    queue(command, *FREE[1:], *LONG, *saver.command)
    saver.wait_for("ready")
    daemon = command.daemon()

    end(daemon)
    until(lambda: not Path(f"/proc/{daemon}").exists() or _is_zombie(daemon), "the daemon has ended")
    assert not (saver.place / "asked-1").exists(), "jobs outlive the daemon"
    command.daemon()
    command.run("stop", "--no-wait", "run-1")
    saver.save()

    until_state(command, "run-1", "cancelled")


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize("half_a_second", ["0.5s", "0.5"])
def test_the_grace_is_what_was_typed_and_its_end_is_told(command: Command, half_a_second: str) -> None:
    queue(command, *FREE[1:], "--grace", half_a_second, "--", *python("ignore_term.py"))
    until(lambda: "deaf" in command.run("logs", "run-1").stdout, "it runs")

    told = command.run("stop", "run-1")

    assert "command.0 was killed after its grace of 0.5 s: " in told.stdout
    assert "/python -S " in jobs(command)["run-1"]["message"]
    assert "--- command.0: killed after its grace of 0.5 s: " in command.run("logs", "run-1").stdout


@pytest.mark.parametrize(
    ("span", "why"), [("0.01s", "too short"), ("2h", "too long"), ("7200", "too long"), ("soon", "is not a span")]
)
def test_a_grace_out_of_bounds_is_refused(command: Command, span: str, why: str) -> None:
    told = command.run(*FREE, "--grace", span, "--", "true")

    assert told.returncode == 2
    assert f"--grace: '{span}'" in told.stderr
    assert why in told.stderr
