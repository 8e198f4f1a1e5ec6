"""`gpusched run` when something is taken away: the terminal, the shell, a pipe's other end, the guard."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from gpusched.attached.command import Attached, signals_kept
from gpusched.execution.directory import create
from gpusched.execution.start import spawn
from gpusched.linux.processes import parent
from tests.cli.command import Command
from tests.cli.foreground import FREE, but_for_the_wait, line, python, running, shell
from tests.cli.queue import GPUSCHED, jobs
from tests.patience import PATIENCE_S, until

ASK = shell("echo ready; read line; echo got $line; sleep 1000")


def pid_of_command(command: Command) -> int:
    """The pid of run-1's command, once its status tells it: by then all is as it stays."""

    def told() -> Any:
        found = command.job("run-1").get("replicas") or [{}]
        return found[0].get("pid")

    until(told, "the command runs")
    return int(told())


def supervisor(command: Command) -> int:
    pid_of_command(command)
    return int(command.job("run-1")["supervisor_pid"])


def guard_of(pid: int) -> int:
    found = parent(pid)
    assert found is not None, f"{pid} has ended"
    return found


def gone(pid: int) -> None:
    until(lambda: parent(pid) is None, f"{pid} has ended")


# ---- terminals ----


def test_ctrl_z_is_ignored_where_no_shell_could_wake_the_command(command: Command, terminal: Any) -> None:
    window = terminal(*GPUSCHED, *ASK)
    window.see("ready")
    pid_of_command(command)
    window.type(b"\x1a")
    window.see("^Z")
    window.type(b"on\r")

    window.see("got on")


def test_a_terminal_that_goes_away_hangs_up_on_the_command(command: Command, terminal: Any) -> None:
    window = terminal(*GPUSCHED, *ASK)
    window.see("ready")
    pid = pid_of_command(command)
    os.dup2(os.open(os.devnull, os.O_RDWR), window.inside)
    os.dup2(window.inside, window.outside)

    gone(pid)
    assert window.process.wait(PATIENCE_S) == 128 + signal.SIGHUP


def test_a_halted_command_does_not_outlive_its_shell(command: Command, terminal: Any) -> None:
    command.env["PS1"] = "next> "
    window = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    window.see("next> ")
    window.type(" ".join((*GPUSCHED, *FREE, "--", "sh", "-c", "'echo re\"\"ady; sleep 1000'")).encode() + b"\r")
    window.see("ready")
    pid = pid_of_command(command)
    window.type(b"\x1a")
    window.see("Stopped")
    window.process.kill()

    gone(pid)


# ---- pipes ----


def test_who_reads_the_output_sees_its_end_when_the_command_closes_it(command: Command) -> None:
    with running(command, *shell("echo all; exec >&-; read line; exit 3"), stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "all\n"

        assert process.poll() is None
        process.communicate("go on\n", timeout=PATIENCE_S)
        assert process.returncode == 3


def test_who_writes_to_the_command_sees_that_it_does_not_read(command: Command) -> None:
    with running(command, *shell("exec <&-; echo closed; sleep 1000"), stdin=subprocess.PIPE) as process:
        assert line(process) == "closed"
        assert process.stdin is not None
        writer = process.stdin.fileno()

        def broken() -> bool:
            try:
                os.write(writer, b"x")
            except BrokenPipeError:
                return True
            return False

        until(broken, "a pipe without a reader is broken")


def test_what_a_shell_puts_in_the_place_of_a_file_can_be_read(command: Command) -> None:
    typed = f"{' '.join((*GPUSCHED, *FREE))} -- cat <(echo hello)"
    told = subprocess.run(["bash", "-c", typed], env=command.env, capture_output=True, text=True, check=False)

    assert (told.returncode, told.stdout, but_for_the_wait(told.stderr)) == (0, "hello\n", "")


def test_a_descriptor_beyond_the_streams_is_the_commands_alone(command: Command) -> None:
    reader, writer = os.pipe()
    high = fcntl.fcntl(writer, fcntl.F_DUPFD, 20)
    os.close(writer)
    script = f"import os; os.write({high}, b'all'); os.close({high}); input()"
    argv = [*GPUSCHED, *python(script)]
    with subprocess.Popen(argv, env=command.env, pass_fds=[high], stdin=subprocess.PIPE) as process:
        os.close(high)
        with os.fdopen(reader, "rb") as file:
            assert file.read() == b"all"

        assert process.poll() is None
        process.communicate(b"done\n", timeout=PATIENCE_S)
    assert process.returncode == 0


def test_descriptors_that_the_shell_has_opened_are_the_commands_with_their_numbers(command: Command) -> None:
    opened = " ".join(f"{number}>{command.home}/{number}" for number in range(3, 10))
    echoes = "; ".join(f"echo {number} >&{number}" for number in range(3, 10))
    typed = f"{' '.join((*GPUSCHED, *FREE))} -- sh -c '{echoes}' {opened}"
    told = subprocess.run(["bash", "-c", typed], env=command.env, capture_output=True, text=True, check=False)

    assert (told.returncode, told.stdout, but_for_the_wait(told.stderr)) == (0, "", "")
    assert [(command.home / str(number)).read_text() for number in range(3, 10)] == [f"{n}\n" for n in range(3, 10)]


def test_a_command_has_no_descriptor_of_ours(command: Command) -> None:
    told = command.run(*FREE, "--", "sh", "-c", "ls /proc/$$/fd")

    assert told.stdout.split() == ["0", "1", "2"]


def test_a_stream_that_is_closed_is_dev_null_for_the_command(command: Command) -> None:
    typed = f"{' '.join((*GPUSCHED, *FREE))} -- sh -c 'readlink /proc/$$/fd/0' <&-"
    told = subprocess.run(["bash", "-c", typed], env=command.env, capture_output=True, text=True, check=False)

    assert (told.returncode, told.stdout, but_for_the_wait(told.stderr)) == (0, "/dev/null\n", "")


def test_a_full_disk_under_stderr_costs_no_place_in_the_queue(command: Command) -> None:
    argv = [*GPUSCHED, "run", "--num-gpus", "0", "--hold", "--", "echo", "up"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=full, text=True, env=command.env)
    with process:
        until(lambda: command.run("release", "run-1").returncode == 0, "it is in the queue")

        assert process.communicate(timeout=PATIENCE_S)[0] == "up\n"


# ---- guards, supervisors and signals ----


def test_kill_9_of_the_guard_is_told_as_what_it_is(command: Command) -> None:
    with running(command, *shell("exec sleep 1000")) as process:
        os.kill(guard_of(supervisor(command)), signal.SIGKILL)
        _, told = process.communicate(timeout=PATIENCE_S)

    assert process.returncode > 128
    assert but_for_the_wait(told) == "gpusched: run-1: the guard of this job was killed\n"
    until(lambda: jobs(command)["run-1"]["state"] == "lost", "the daemon knows")


def test_kill_9_of_guard_and_supervisor_is_told_as_what_it_is(command: Command) -> None:
    with running(command, *shell("exec sleep 1000")) as process:
        pid = pid_of_command(command)
        one = supervisor(command)
        guard = guard_of(one)
        os.kill(guard, signal.SIGSTOP)  # so that it says no last word for the supervisor
        os.kill(one, signal.SIGKILL)
        os.kill(guard, signal.SIGKILL)
        _, told = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 128 + signal.SIGKILL
    assert but_for_the_wait(told) == "gpusched: run-1: its guard and its supervisor were killed\n"
    gone(pid)


def test_kill_9_of_the_supervisor_signals_nothing_else_in_the_callers_group(command: Command) -> None:
    """The kernel hangs up on a group that becomes orphaned by the end of a process, if one of the group is halted."""
    told, halted = command.home / "told", command.home / "halted"
    script = f"""
        trap 'echo HUP >> {told}' HUP
        sleep 1000 & echo $! > {halted}; kill -STOP $!
        {" ".join((*GPUSCHED, *FREE))} -- sleep 1000
        echo $? >> {told}
    """
    with subprocess.Popen(["bash", "-c", script], env=command.env, start_new_session=True) as caller:
        os.kill(supervisor(command), signal.SIGKILL)
        caller.wait(PATIENCE_S)

    assert told.read_text() == f"{128 + signal.SIGKILL}\n"
    assert Path(f"/proc/{halted.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_signal_that_no_command_could_have_is_not_forgotten(tmp_path: Path) -> None:
    directory = create(tmp_path, "run")
    directory.guard_lock.touch()
    with signals_kept():
        guard = spawn(directory, "called off", os.environ)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        assert Attached(directory, guard).wait() == [signal.SIGTERM]


def test_sigterm_before_the_job_is_taken_in_ends_it_as_it_would_any_command(command: Command) -> None:
    daemon = command.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        with running(command, *shell("echo never")) as process:
            until(lambda: _catches(process.pid, signal.SIGTERM), "it listens to signals")
            process.terminate()

            assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        os.kill(daemon, signal.SIGCONT)


def _catches(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return any(one.startswith("SigCgt:") and int(one.split()[1], 16) >> (number - 1) & 1 for one in lines)
    return False


def test_ctrl_c_while_it_waits_is_no_stop_by_somebody_else(command: Command) -> None:
    held = command.run("run", "-d", "--hold", "--num-gpus", "0", "--", "true")
    assert held.returncode == 0, held.stderr
    with command.start("run", "--num-gpus", "0", "--after", "run-1", "--", "true") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith("gpusched: run-2 waits")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(PATIENCE_S) == 130
    assert jobs(command)["run-2"]["message"] == "its command was ended, as by Ctrl-C, before it could start"


DROPPED = """
import signal, sys, weakref
import gpusched.attached.run as run
await_turn = run._await_turn
class Thing: pass
def late(*given):
    thing = Thing()
    within = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing
    return await_turn(*given)
run._await_turn = late
from gpusched.cli.main import main
sys.exit(main())
"""


def test_sigterm_is_met_though_python_drops_what_its_handler_raises(command: Command) -> None:
    """As it does in callbacks, such as those of an import that is under way."""
    held = command.run("run", "-d", "--hold", "--num-gpus", "0", "--", "true")
    assert held.returncode == 0, held.stderr
    argv = [sys.executable, "-c", DROPPED, "run", "--num-gpus", "0", "--after", "run-1", "--", "true"]
    told = subprocess.run(argv, env=command.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "Exception ignored in" in told.stderr
    assert told.returncode == 128 + signal.SIGTERM
    assert jobs(command)["run-2"]["message"] == "its command was ended, as by Ctrl-C, before it could start"


LATE = """
import subprocess, sys
import gpusched.execution.start as start
from gpusched.cli.main import main

def late(*words, **options):
    subprocess.run([sys.executable, "-m", "gpusched", "stop", "run-1"], capture_output=True, check=True)
    return spawn(*words, **options)

spawn, start.spawn = start.spawn, late
sys.exit(main())
"""
"""`gpusched` that somebody stops when the turn of its command has come, before it has started that."""


def test_a_stop_between_the_turn_and_the_start_is_an_ordinary_stop(command: Command) -> None:
    argv = [sys.executable, "-c", LATE, *shell("echo never")]

    told = subprocess.run(argv, env=command.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (told.returncode, told.stdout) == (1, "")
    end = "gpusched: run-1 was cancelled before it could start: stopped by gpusched stop\n"
    assert but_for_the_wait(told.stderr) == end
