"""An attached command: it behaves as one that the shell had started, and ends with its job all the same."""

import contextlib
import json
import os
import pty
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.model.plan import ReplicaSpec
from gpusched.model.status import ExitReason, JobState
from tests.patience import PATIENCE_S, until
from tests.supervisor.host import Host, Job
from tests.supervisor.specs import python, replica


class Terminal:
    """The outer end of a pseudo-terminal: what a person types and sees."""

    def __init__(self) -> None:
        self._outer, self.inner = pty.openpty()
        os.set_blocking(self._outer, False)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._outer, text.encode())

    def wait_for(self, text: str) -> None:
        until(lambda: text in self._read(), f"the terminal shows {text!r}")

    def close(self) -> None:
        os.close(self._outer)
        os.close(self.inner)

    def _read(self) -> str:
        with contextlib.suppress(OSError):
            self.seen += os.read(self._outer, 65536).decode()
        return self.seen


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    found.close()


def shell(script: str) -> ReplicaSpec:
    return replica("command.0", ("sh", "-c", script))


def ended(one: Job) -> tuple[JobState, ExitReason | None]:
    return one.wait_ended().state, one.replica("command.0").exit


def test_streams_and_exit_code_are_the_commands(host: Host) -> None:
    one = host.prepare(shell("tr a-z A-Z; echo problem >&2; exit 3"))
    launcher = host.attach(one)
    assert launcher.communicate(b"hello", timeout=PATIENCE_S) == (b"HELLO", b"problem\n")
    assert launcher.returncode == 3
    assert ended(one) == (JobState.FAILED, ExitReason(kind="crashed", code=3))
    assert not one.directory.log("command.0").exists()
    one.wait_gone()


def test_a_reader_sees_the_end_of_the_output_while_the_command_still_runs(host: Host) -> None:
    one = host.prepare(shell("echo all; exec >&- 2>&-; sleep 1000"))
    launcher = host.attach(one, "hands-off")
    assert launcher.stdout is not None
    assert launcher.stdout.read() == b"all\n"
    assert one.status.state is JobState.RUNNING
    one.stop()
    assert ended(one) == (JobState.CANCELLED, ExitReason(kind="stopped", signal=signal.SIGTERM))


def test_a_writer_sees_that_nobody_reads_any_more(host: Host) -> None:
    one = host.prepare(shell("exec <&-; echo closed; sleep 1000"))
    launcher = host.attach(one, "hands-off")
    one.wait_running("command.0")
    assert launcher.stdin is not None

    def broken() -> bool:
        try:
            os.write(launcher.stdin.fileno() if launcher.stdin else -1, b"x")
        except BrokenPipeError:
            return True
        return False

    until(broken, "a pipe without a reader is broken")


def test_the_command_is_in_the_launchers_group_with_everything_as_in_a_shell(host: Host, tmp_path: Path) -> None:
    one = host.prepare(replica("command.0", python("tell.py", str(tmp_path / "told.json"))))
    launcher = host.attach(one)
    until((tmp_path / "told.json").exists, "the command has told")
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["group"] == launcher.pid
    assert told["descriptors"] == [0, 1, 2]
    assert told["stdin"].startswith("pipe:")
    assert told["blocked"] == []
    assert not told["sighup_ignored"]
    assert told["env"]["TMPDIR"] == os.environ.get("TMPDIR"), "what it leaves there is not ours to clear"


def test_a_command_under_nohup_is_not_ended_by_a_hangup(host: Host, tmp_path: Path) -> None:
    one = host.prepare(replica("command.0", python("tell.py", str(tmp_path / "told.json"))))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        host.attach(one)
    finally:
        signal.signal(signal.SIGHUP, before)
    until((tmp_path / "told.json").exists, "the command has told")
    assert json.loads((tmp_path / "told.json").read_text())["sighup_ignored"]


def test_a_terminal_is_the_commands_and_ctrl_c_reaches_nobody_else(host: Host, terminal: Terminal) -> None:
    one = host.prepare(shell("trap 'echo caught; exit 7' INT; read word; test -t 1 && echo got $word; read more"))
    launcher = host.attach(one, terminal=terminal.inner)
    terminal.type("hello\n")
    terminal.wait_for("got hello")
    terminal.type("\x03")
    terminal.wait_for("caught")
    assert launcher.wait(PATIENCE_S) == 7
    assert ended(one) == (JobState.FAILED, ExitReason(kind="crashed", code=7))
    assert one.status.message == "command.0 crashed with code 7"
    one.wait_gone()


def test_ctrl_c_ends_a_command_that_does_not_mind_it(host: Host, terminal: Terminal) -> None:
    one = host.prepare(shell("echo ready; exec sleep 1000"))
    launcher = host.attach(one, terminal=terminal.inner)
    terminal.wait_for("ready")
    terminal.type("\x03")
    assert launcher.wait(PATIENCE_S) == 128 + signal.SIGINT
    assert ended(one) == (JobState.CANCELLED, ExitReason(kind="signalled", signal=signal.SIGINT))
    assert one.status.message == "ended by SIGINT, as by Ctrl-C"


@pytest.mark.parametrize(
    ("end", "state", "message"),
    [
        ("kill -HUP $$", JobState.CANCELLED, "ended by SIGHUP, as when its terminal is closed"),
        ("exit 130", JobState.CANCELLED, "ended by SIGINT, as by Ctrl-C"),
        ("exit 129", JobState.FAILED, "command.0 crashed with code 129"),  # as git's wrong options
        ("kill -TERM $$", JobState.FAILED, "command.0 killed by SIGTERM"),
    ],
)
def test_a_command_in_the_foreground_that_its_terminal_ends_has_not_failed(
    host: Host, terminal: Terminal, end: str, state: JobState, message: str
) -> None:
    one = host.prepare(shell(end))
    assert host.attach(one, terminal=terminal.inner).wait(PATIENCE_S) > 128
    assert (ended(one)[0], one.status.message) == (state, message)


def test_ctrl_z_halts_the_command_and_it_goes_on_with_its_launcher(host: Host, terminal: Terminal) -> None:
    one = host.prepare(shell("echo ready; read word; echo got $word"))
    launcher = host.attach(one, terminal=terminal.inner)
    terminal.wait_for("ready")
    terminal.type("\x1a")
    terminal.wait_for("halted")
    terminal.type("hello\n")
    terminal.wait_for("got hello")
    assert launcher.wait(PATIENCE_S) == 0
    assert ended(one) == (JobState.SUCCEEDED, ExitReason(kind="completed"))


def test_a_stop_reaches_the_command_and_what_it_started_but_not_its_launcher(host: Host) -> None:
    apart = 'trap "echo farewell; exit" TERM; echo up; sleep 1000 & wait'
    script = f"trap 'echo bye; exit 7' TERM; setsid sh -c '{apart}' & wait; wait"
    one = host.prepare(shell(script), stop_grace_s=60.0)
    launcher = host.attach(one)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"up\n"
    one.stop()
    said, _ = launcher.communicate(timeout=PATIENCE_S)
    assert b"bye" in said
    assert b"farewell" in said
    assert launcher.returncode == 7
    assert ended(one) == (JobState.CANCELLED, ExitReason(kind="stopped", code=7))
    one.wait_gone()


def test_a_halted_command_can_be_stopped(host: Host) -> None:
    one = host.prepare(shell("trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done"), stop_grace_s=60.0)
    launcher = host.attach(one)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"ready\n"
    os.kill(one.wait_running("command.0"), signal.SIGSTOP)
    one.stop()
    assert launcher.communicate(timeout=PATIENCE_S)[0] == b"bye\n"


def test_a_deaf_command_is_killed_after_the_grace_and_its_launcher_lives(host: Host) -> None:
    one = host.prepare(replica("command.0", python("ignore_term.py")))
    launcher = host.attach(one)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"deaf\n"
    one.stop()
    assert launcher.wait(PATIENCE_S) == 137
    assert ended(one) == (JobState.CANCELLED, ExitReason(kind="stopped", signal=signal.SIGKILL))
    one.wait_gone()


def test_the_command_ends_with_its_launcher(host: Host) -> None:
    one = host.prepare(shell("sleep 1000 & sleep 1000"))
    launcher = host.attach(one)
    one.wait_running("command.0")
    launcher.kill()
    launcher.wait()
    status = one.wait_ended()
    assert (status.state, status.message) == (
        JobState.CANCELLED,
        "stopped because the `gpusched run` that it belongs to is gone",
    )
    one.wait_gone()


def test_what_the_command_leaves_in_the_background_ends_with_the_job(host: Host) -> None:
    one = host.prepare(shell("sleep 1000 & setsid sleep 1000 & echo done"))
    launcher = host.attach(one)
    assert launcher.communicate(timeout=PATIENCE_S)[0] == b"done\n"
    assert ended(one) == (JobState.SUCCEEDED, ExitReason(kind="completed"))
    one.wait_gone()


def test_a_command_that_is_not_there_says_so_and_is_not_tried_again(host: Host) -> None:
    one = host.prepare(replica("command.0", ("no-such-program",)))
    host.attach(one)
    state, reason = ended(one)
    assert state is JobState.FAILED
    assert reason == ExitReason(kind="spawn-failed", message="no-such-program: No such file or directory")
    assert one.replica("command.0").restarts == 0
