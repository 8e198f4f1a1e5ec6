"""After a stop, everything that a replica started has the grace, also where what it was started by ends at once."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusched.model.plan import ReplicaSpec
from gpusched.model.status import ExitReason, JobState, ReplicaState
from tests.patience import until
from tests.programs import find_program
from tests.supervisor.host import Host
from tests.supervisor.specs import CHILDREN, python, replica

LONG = 60.0
"""A grace that only a hang uses up."""


class Savers:
    """Programs that save when they are asked to, in `place`, for as long as the test wants it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()

    def command(self, *words: str) -> tuple[str, ...]:
        return (*python("saver.py"), str(self.place), *words)

    def line(self, *words: str) -> str:
        return " ".join(self.command(*words))

    def wait_for(self, what: str, *numbers: int) -> None:
        for number in numbers or (1,):
            try:
                until((self.place / f"{what}-{number}").exists, f"saver {number} is {what}")
            except AssertionError as error:
                left = {path.name: path.read_text() for path in sorted(self.place.glob("*-?"))}
                lives = Path(f"/proc/{left.get(f'ready-{number}')}").exists()
                raise AssertionError(f"{error}; it {'lives' if lives else 'has ended'}, and left {left}") from None

    def pid(self, number: int = 1) -> int:
        return int((self.place / f"ready-{number}").read_text())

    def release(self) -> None:
        (self.place / "release").touch()

    def found(self, what: str) -> list[str]:
        return sorted(path.name for path in self.place.glob(f"{what}-?"))

    def save(self, *numbers: int) -> None:
        """All of them have been asked, and save; none has had a second signal."""
        self.wait_for("asked", *numbers)
        self.release()
        self.wait_for("saved", *numbers)
        assert self.found("second") == []


@pytest.fixture
def savers(tmp_path: Path) -> Savers:
    return Savers(tmp_path / "savers")


def bash(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    script = savers.place / "wrap.sh"
    script.write_text(f"{savers.line('1')}\necho on\n")
    return ("bash", str(script)), (1,)


def make(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    (savers.place / "Makefile").write_text(f"train:\n\t{savers.line('1', 'patient')}\n")  # it sends SIGTERM as well
    return ("make", "-C", str(savers.place)), (1,)


def uv_run(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    uv = find_program("uv")
    assert uv is not None, "uv comes with the dev extra: make setup"
    return (uv, "run", "--no-project", "--offline", "--", *savers.command("1", "patient")), (1,)


def spawn(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return (sys.executable, str(CHILDREN / "spawner.py"), *savers.command()), (1, 2)


def torchrun(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return (*python("elastic.py", "forward"), *savers.command()), (1, 2)


def torchrun_in_a_script(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    script = savers.place / "wrap.sh"
    script.write_text(f"{' '.join(torchrun(savers)[0])}\necho on\n")
    return ("bash", str(script)), (1, 2)


def launcher_that_leaves(savers: Savers) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return (*python("elastic.py", "leave"), *savers.command()), (1, 2)


Wrapped = Callable[[Savers], tuple[tuple[str, ...], tuple[int, ...]]]
WRAPPERS = [bash, make, uv_run, spawn, torchrun, torchrun_in_a_script, launcher_that_leaves]
END_AT_ONCE = [bash, spawn, torchrun_in_a_script, launcher_that_leaves]


def gone(pid: int) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists(), f"{pid} has ended, and its supervisor knows")


def command(argv: tuple[str, ...]) -> ReplicaSpec:
    return replica("command.0", argv)


@pytest.mark.parametrize("wrapped", WRAPPERS)
def test_a_stop_leaves_a_program_behind_a_wrapper_its_grace(host: Host, savers: Savers, wrapped: Wrapped) -> None:
    argv, numbers = wrapped(savers)
    one = host.start(command(argv), leader="command", stop_grace_s=LONG)
    savers.wait_for("ready", *numbers)
    wrapper = one.wait_running("command.0")

    one.stop()
    if wrapped in END_AT_ONCE:
        gone(wrapper)
    savers.save(*numbers)

    assert one.wait_ended().state is JobState.CANCELLED
    assert one.status.message == "stopped on request"
    one.wait_gone()


@pytest.mark.parametrize("wrapped", WRAPPERS)
def test_a_stop_of_an_attached_command_leaves_it_the_same_grace(host: Host, savers: Savers, wrapped: Wrapped) -> None:
    argv, numbers = wrapped(savers)
    one = host.prepare(command(argv), leader="command", stop_grace_s=LONG)
    launcher = host.attach(one)
    savers.wait_for("ready", *numbers)
    wrapper = one.wait_running("command.0")

    one.stop()
    if wrapped in END_AT_ONCE:
        gone(wrapper)
    savers.wait_for("asked", *numbers)
    assert launcher.poll() is None, "who has typed it waits until all is saved"
    savers.save(*numbers)

    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


THREADED = """
import ctypes, os, signal, sys, threading
def save():
    signal.sigwait([signal.SIGTERM])
    open(sys.argv[1] + "/saved-1", "w").close()
    os._exit(0) if "deaf" not in sys.argv else threading.Event().wait()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Thread(target=save).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.parametrize(("deaf", "grace_s"), [((), LONG), (("deaf",), 0.3)], ids=["it ends", "it is killed"])
def test_a_program_of_which_the_first_thread_has_ended_is_stopped(
    host: Host, savers: Savers, deaf: tuple[str, ...], grace_s: float
) -> None:
    """It is a zombie to /proc, and runs (pthread_exit(3))."""
    program = command((sys.executable, "-S", "-c", THREADED, str(savers.place), *deaf))
    one = host.start(program, leader="command", stop_grace_s=grace_s)
    pid = one.wait_running("command.0")
    until(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text(), "its first thread has ended")

    one.stop()
    if not deaf:
        savers.wait_for("saved")

    assert one.wait_ended().state is JobState.CANCELLED


def test_a_time_limit_leaves_a_program_behind_a_wrapper_its_grace_and_a_line_in_its_log(
    host: Host, savers: Savers
) -> None:
    argv, _ = bash(savers)
    one = host.start(command(argv), leader="command", stop_grace_s=LONG, time_limit_s=10.0)
    savers.save()

    status = one.wait_ended()
    assert (status.state, status.message) == (JobState.FAILED, "its time limit of 10 s is over")
    assert "--- command.0: its time limit of 10 s is over ---\n" in one.output("command.0")


def test_an_overrun_leaves_a_program_behind_a_wrapper_its_grace(host: Host, savers: Savers) -> None:
    from gpusched.execution.orders import OverrunOrder, give

    argv, _ = bash(savers)
    one = host.start(command(argv), stop_grace_s=LONG)
    savers.wait_for("ready")

    wrapper = one.wait_running("command.0")

    give(one.status, OverrunOrder(replica="command.0", pid=wrapper, message="too much", restart=True))
    gone(wrapper)
    savers.save()

    one.wait_running("command.0", restarts=1)


def test_the_end_of_the_launcher_leaves_a_program_behind_a_wrapper_its_grace(host: Host, savers: Savers) -> None:
    argv, _ = bash(savers)
    one = host.prepare(command(argv), stop_grace_s=LONG)
    launcher = host.attach(one)
    savers.wait_for("ready")

    wrapper = one.wait_running("command.0")
    launcher.kill()
    launcher.wait()
    gone(wrapper)
    savers.save()

    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_the_share_of_a_replica_is_held_until_the_last_of_its_processes_has_ended(host: Host, savers: Savers) -> None:
    argv, _ = bash(savers)
    one = host.start(command(argv), replica("other.0", ("sleep", "1000")), stop_grace_s=LONG)
    savers.wait_for("ready")

    os.kill(one.wait_running("command.0"), signal.SIGKILL)
    savers.wait_for("asked")

    until(lambda: one.replica("command.0").state is ReplicaState.STOPPING, "its end is waited for")
    savers.save()
    one.wait_running("command.0", restarts=1)


def test_what_a_replica_left_when_it_ended_by_itself_is_asked_and_then_killed(host: Host, savers: Savers) -> None:
    one = host.start(
        command(("sh", "-c", f"{savers.line('1')} & until [ -e {savers.place}/ready-1 ]; do :; done; exit 3"))
    )
    savers.wait_for("asked")

    status = one.wait_ended()  # the grace of 0.3 s was over after each start

    assert (status.state, status.message) == (JobState.FAILED, "command.0 crashed with code 3, after 2 restarts")
    assert savers.found("second") == savers.found("saved") == []
    assert f"--- command.0: killed after its grace of 0.3 s: {savers.pid()} (" in one.output("command.0")
    one.wait_gone()


def test_what_fled_and_lost_its_parent_has_its_grace_at_the_end_of_the_job(host: Host, savers: Savers) -> None:
    """A server that a replica started goes on without it, and saves when the job ends."""
    script = f"setsid {savers.line('1')} & until [ -e {savers.place}/ready-1 ]; do :; done"
    one = host.start(replica("setup.0", ("sh", "-c", script)), replica("last.0", ("sleep", "1000")), stop_grace_s=LONG)
    savers.wait_for("ready")
    until(lambda: one.replica("setup.0").state is ReplicaState.EXITED, "what started it has ended")
    assert savers.found("asked") == []

    one.stop()
    savers.save()

    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_what_is_killed_after_its_grace_stands_in_the_log_and_in_the_reason(host: Host) -> None:
    one = host.start(replica("part.0", python("ignore_term.py")))
    one.wait_output("part.0", "deaf\n")
    pid = one.wait_running("part.0")

    one.stop()

    told = f"killed after its grace of 0.3 s: {pid} ({' '.join(python('ignore_term.py'))})"
    assert one.wait_ended().message == f"stopped on request; part.0 was {told}"
    assert one.output("part.0").endswith(f"--- part.0: stopped on request ---\n--- part.0: {told} ---\n")


def test_strays_that_are_killed_after_the_grace_stand_in_the_reason(host: Host) -> None:
    one = host.start(replica("part.0", python("daemonise.py", "leave")), replica("last.0", ("sleep", "1000")))
    one.wait_output("part.0", "daemon\n")
    until(lambda: one.replica("part.0").state is ReplicaState.EXITED, "only the daemon is left of it")

    one.stop()

    message = one.wait_ended().message or ""
    assert message.startswith("stopped on request; killed after its grace of 0.3 s: "), message
    assert "python" in message
    one.wait_gone()


def test_a_second_request_kills_what_a_wrapper_has_left_at_once(host: Host, savers: Savers) -> None:
    argv, _ = bash(savers)
    one = host.start(command(argv), leader="command", stop_grace_s=LONG)
    savers.wait_for("ready")

    os.kill(one.supervisor, signal.SIGTERM)
    savers.wait_for("asked")
    os.kill(one.supervisor, signal.SIGTERM)

    assert one.wait_ended().message == "stopped on request", "nobody killed it because its grace was over"
    assert savers.found("saved") == []
    one.wait_gone()


def test_what_a_wrapper_left_that_crashed_goes_before_the_wrapper_comes_back(host: Host, savers: Savers) -> None:
    argv, _ = bash(savers)
    one = host.start(command(argv), stop_grace_s=LONG)
    savers.wait_for("ready")
    first = savers.pid()

    os.kill(one.wait_running("command.0"), signal.SIGSEGV)
    savers.wait_for("asked")
    (savers.place / "ready-1").unlink()
    assert one.replica("command.0").exit is None
    savers.save()
    savers.wait_for("ready")

    assert savers.pid() != first
    one.wait_running("command.0", restarts=1)
    assert '"kind":"signalled","code":null,"signal":11' in one.directory.events.read_text()
    one.stop()
    assert one.wait_ended().replicas[0].exit == ExitReason(kind="stopped")
