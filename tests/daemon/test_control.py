import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from gpusched.control import client
from gpusched.control.client import Client, connect_or_start, control_socket, daemon_pid
from gpusched.control.codec import decode_answer, encode
from gpusched.control.messages import PROTOCOL, ListJobs, Ping, Refused, Shutdown, Submit
from gpusched.control.place import listener
from gpusched.errors import HostFault, NoDaemon
from gpusched.linux.file_locks import lock
from gpusched.linux.processes import descendants
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import PATIENCE_S, until

NUMBER = (7).to_bytes(8, "big")


def stranger(daemon: Daemon, context: "zmq.Context[zmq.Socket[bytes]]") -> Any:
    """A peer that sends what it likes."""
    one = context.socket(zmq.DEALER)
    one.linger = 0
    one.sndhwm = one.rcvhwm = 0
    one.connect(f"ipc://{control_socket(daemon.settings)}")
    return one


def hostile(daemon: Daemon, seed: int) -> list[list[bytes]]:
    """Messages that mean nothing: random bytes, cut off, of another version, of wrong types, of odd frames."""
    dice = random.Random(seed)  # noqa: S311
    version, honest = bytes([PROTOCOL]), encode(Submit(job=daemon.submission("true")))
    kinds = [
        lambda: [dice.randbytes(dice.randrange(200)) for _ in range(dice.randrange(1, 7))],
        lambda: [version, NUMBER, honest[: dice.randrange(len(honest))]],
        lambda: [bytes([dice.randrange(PROTOCOL + 1, 256)]), NUMBER, honest],
        lambda: [version, NUMBER, msgspec.msgpack.encode({"type": "submit", "job": dice.choice([1, [], {}, None])})],
        lambda: [version, NUMBER, msgspec.msgpack.encode({"type": dice.choice(["", "reboot", 7])})],
        lambda: [version, NUMBER, b"\x91" * 5000],
        lambda: [version, NUMBER, b"\xdd\xff\xff\xff\xff"],
        lambda: [version, NUMBER[:3], honest],
        lambda: [version, NUMBER, honest, b"more"],
        lambda: [b"", NUMBER, b""],
    ]
    return [dice.choice(kinds)() for _ in range(10_000)]


def test_ten_thousand_hostile_messages_change_nothing_but_a_counter(daemon: Daemon) -> None:
    daemon.start()
    before = daemon.pong()
    messages = hostile(daemon, seed=3)
    context = zmq.Context()
    peer = stranger(daemon, context)
    try:
        for message in messages:
            peer.send_multipart(message)
        with Client(daemon.settings) as client:
            client.ask(Ping())
        until(lambda: daemon.pong().malformed >= len(messages), "all have been dropped")
        after = daemon.pong()
    finally:
        peer.close()
        context.term()
    assert after.malformed == len(messages)
    assert (after.pid, after.queued, after.running, daemon.jobs()) == (before.pid, 0, 0, ())
    assert daemon.log.count("dropped") <= 5


def test_a_socket_that_a_forked_child_holds_open_has_no_listener_once_its_daemon_was_killed(tmp_path: Path) -> None:
    place = tmp_path / "control.sock"
    script = (
        "import os, signal, socket, sys, time",
        "one = socket.socket(socket.AF_UNIX)",
        f"one.bind({str(place)!r})",
        "one.listen()",
        "if os.fork() == 0: time.sleep(1000)",  # as a guard before it executes its program
        "signal.pause()",
    )
    with subprocess.Popen([sys.executable, "-c", "\n".join(script)], start_new_session=True) as daemon:
        try:
            until(lambda: listener(place) == daemon.pid, "it listens")
            until(lambda: descendants(daemon.pid), "its child holds the socket, too")
            daemon.kill()
            daemon.wait()
            assert listener(place) is None
        finally:
            os.killpg(daemon.pid, signal.SIGKILL)


def test_a_peer_whose_request_is_not_understood_is_told(daemon: Daemon) -> None:
    daemon.start()
    context = zmq.Context()
    peer = stranger(daemon, context)
    try:
        peer.send_multipart([bytes([PROTOCOL]), NUMBER, b"\xc1"])
        assert peer.poll(1000 * int(PATIENCE_S))
        _, number, frame = peer.recv_multipart()
        told = decode_answer(frame)
    finally:
        peer.close()
        context.term()
    assert number == NUMBER
    assert isinstance(told, Refused)
    assert told.code == "protocol"


def test_a_message_that_is_too_long_ends_only_its_peer(daemon: Daemon) -> None:
    daemon.start()
    context = zmq.Context()
    peer = stranger(daemon, context)
    try:
        peer.send_multipart([bytes([PROTOCOL]), NUMBER, bytes(9 << 20)])
        assert daemon.pong().queued == 0
    finally:
        peer.close()
        context.term()


@pytest.mark.parametrize("version", [0, PROTOCOL + 1])
def test_a_daemon_of_another_protocol_is_named_with_the_fix(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    daemon.start()
    monkeypatch.setattr("gpusched.control.client.PROTOCOL", version)
    with pytest.raises(NoDaemon, match=rf"speaks protocol {PROTOCOL} and this one {version}") as raised:
        daemon.ask(Ping())
    assert "gpusched daemon stop" in raised.value.hint


def test_without_a_daemon_its_status_says_so(daemon: Daemon) -> None:
    told = daemon.command.run("daemon", "status")
    assert told.returncode == 4
    assert "no daemon runs" in told.stderr
    assert "gpusched daemon start" in told.stderr
    assert daemon.pid == 0


def test_a_hung_daemon_is_told_of_and_can_be_killed(daemon: Daemon) -> None:
    daemon.start()
    pid = daemon.pid  # read now: what asks a halted daemon fills its queue of connections, and then there is no answer
    os.kill(pid, signal.SIGSTOP)
    for arguments, code in ((["ps"], 0), (["daemon", "stop"], 4)):  # ps reads the directories of the jobs instead
        told = daemon.command.run(*arguments)
        assert told.returncode == code
        assert f"process {pid}" in told.stderr
        assert "daemon stop --kill" in told.stderr
    assert daemon.command.run("daemon", "stop", "--kill").returncode == 0
    assert daemon.pid == 0


def test_whose_pid_a_lock_file_has_is_killed_only_if_it_is_a_daemon(daemon: Daemon) -> None:
    """As where the daemon runs in a container with the same state directory: its pid is another process's here."""
    daemon.state.mkdir(mode=0o700, parents=True)
    with subprocess.Popen(["sleep", "1000"]) as other, (daemon.state / "daemon.lock").open("w") as file:
        try:
            file.write(str(other.pid))
            file.flush()
            assert lock(file.fileno(), 0)
            told = daemon.command.run("daemon", "stop", "--kill")
            assert (told.returncode, f"process {other.pid} is no daemon" in told.stderr) == (5, True), told.stderr
            assert other.poll() is None
        finally:
            other.kill()


def test_two_that_start_at_once_end_with_one_daemon(daemon: Daemon) -> None:
    both = [daemon.command.start("daemon", "start") for _ in range(3)]
    for one in both:
        assert one.wait(timeout=PATIENCE_S) == 0, one.stdout and one.stdout.read()

    def daemons() -> list[int]:
        running = {pid: Path(f"/proc/{pid}/cmdline") for pid in daemon.command.running()}
        return [pid for pid, line in running.items() if line.exists() and b"gpusched.daemon" in line.read_bytes()]

    until(lambda: len(daemons()) == 1, "the others have ended")  # a command is done as soon as any of them answers
    assert [daemon.pid] == [daemon_pid(daemon.settings)] == daemons()


def test_a_second_daemon_in_the_foreground_ends_and_names_the_first(daemon: Daemon) -> None:
    daemon.start()
    told = daemon.command.run("daemon", "run")
    assert told.returncode == 2
    assert f"process {daemon.pid}" in told.stderr


def test_start_status_and_stop_as_a_person_types_them(daemon: Daemon) -> None:
    assert daemon.command.run("daemon", "start").returncode == 0
    shown = daemon.command.run("daemon", "status")
    assert f"process {daemon.pid}" in shown.stdout
    assert str(daemon.state) in shown.stdout
    document = msgspec.json.decode(daemon.command.run("daemon", "status", "--json").stdout)
    assert document["pid"] == daemon.pid
    assert daemon.command.run("daemon", "stop").returncode == 0
    assert daemon.command.run("daemon", "status").returncode == 4
    assert daemon.command.run("daemon", "start", "--json").stdout.strip() == '{"started": true}'


def test_what_keeps_the_daemon_from_starting_reaches_the_person(daemon: Daemon) -> None:
    daemon.state.mkdir()
    database = daemon.state / "gpusched.db"
    database.write_bytes(b"this is no database, and long enough to be looked at" * 50)
    before = database.read_bytes()
    told = daemon.command.run("daemon", "start")
    assert told.returncode == 5
    assert str(database) in told.stderr
    assert database.read_bytes() == before


def test_a_daemon_that_ends_in_the_moment_before_it_is_asked_is_started_again(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [1]  # one listens at the first look only
    monkeypatch.setattr(client, "listener", lambda path: seen.pop() if seen else listener(path))
    for name, value in daemon.command.env.items():
        monkeypatch.setenv(name, value)
    with connect_or_start(daemon.settings) as link:
        assert link.ask(Ping())
    daemon.command.run("daemon", "stop")


@pytest.fixture
def slow_starts(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The starts of daemons that take a second to begin."""
    starts: list[str] = []
    slow = str(Path(__file__).with_name("slow_daemon.py"))

    def command(_module: str, *arguments: str) -> list[str]:
        starts.append(arguments[-1])
        return [sys.executable, slow, arguments[-1]]

    monkeypatch.setattr(client, "own_command", command)
    for name, value in daemon.command.env.items():
        monkeypatch.setenv(name, value)
    return starts


@pytest.mark.parametrize(("moment", "patience_s"), [("answer", 0.1), ("lock", client._START_PATIENCE_S)])
def test_a_daemon_that_begins_late_is_waited_for(
    moment: str, patience_s: float, daemon: Daemon, slow_starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_START_PATIENCE_S", patience_s)
    monkeypatch.setenv("SLOW_AT", moment)
    with connect_or_start(daemon.settings) as link:
        assert link.ask(Ping())
    assert len(slow_starts) == 1
    daemon.command.run("daemon", "stop")


def test_a_daemon_that_has_no_lock_in_time_is_started_once_and_the_error_names_its_log(
    daemon: Daemon, slow_starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_START_PATIENCE_S", 0.1)
    may_begin = daemon.settings.runtime_dir.with_name("may-begin")
    monkeypatch.setenv("SLOW_AT", "lock")
    monkeypatch.setenv("MAY_BEGIN", str(may_begin))
    with pytest.raises(NoDaemon, match=r"the daemon has not begun within 0\.1 s") as caught:
        connect_or_start(daemon.settings)
    assert (len(slow_starts), caught.value.hint) == (1, f"it may begin yet: see {daemon.state / 'daemon.log'}")
    may_begin.touch()
    until(lambda: listener(control_socket(daemon.settings)), "it begins all the same")
    daemon.command.run("daemon", "stop")


def test_the_socket_is_this_users_only(daemon: Daemon) -> None:
    daemon.start()
    path = control_socket(daemon.settings)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_runtime_directory_that_others_can_enter_is_refused(daemon: Daemon) -> None:
    daemon.settings.runtime_dir.mkdir(mode=0o755)
    with pytest.raises(HostFault, match="open to other users"):
        connect_or_start(daemon.settings)


def test_a_daemon_whose_state_directory_is_gone_ends_by_itself(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process is not None
    daemon.state.rename(daemon.state.with_name("elsewhere"))
    assert daemon.process.wait(timeout=PATIENCE_S) == 0


def test_a_socket_that_was_removed_comes_back(daemon: Daemon) -> None:
    daemon.start()
    control_socket(daemon.settings).unlink()
    until(lambda: listener(control_socket(daemon.settings)), "the daemon listens again")
    assert daemon.pong().pid == daemon.process.pid if daemon.process else False


def test_jobs_go_on_when_the_daemon_is_asked_to_end(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600")
    supervisor = daemon.wait(job, JobState.RUNNING).supervisor_pid
    daemon.ask(Shutdown())
    assert daemon.process is not None
    assert daemon.process.wait(timeout=PATIENCE_S) == 0
    daemon.start()
    found = daemon.job(job)
    assert (found.state, found.supervisor_pid) == (JobState.RUNNING, supervisor)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(daemon: Daemon, number: int) -> None:
    daemon.start()
    assert daemon.process is not None
    daemon.process.send_signal(number)
    assert daemon.process.wait(timeout=PATIENCE_S) == 0
    assert not control_socket(daemon.settings).exists()


def test_memory_stays_flat_over_five_hundred_submissions(daemon: Daemon) -> None:
    daemon.start()
    client = daemon.client()
    submission = daemon.submission("true", hold=True)
    client.ask(Submit(job=submission))
    before = resident_mib(daemon.pid)
    for _ in range(500):
        client.ask(Submit(job=submission))
    assert daemon.pong().queued == 501
    assert resident_mib(daemon.pid) - before < 8
    assert resident_mib(daemon.pid) < 60


def resident_mib(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def test_a_daemon_that_begins_is_waited_for_and_one_that_never_listens_is_no_endless_wait(daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()
    descriptor = os.open(daemon.state / "daemon.lock", os.O_RDWR)
    try:
        assert lock(descriptor, 0), "as a daemon has it before it listens"
        with Client(daemon.settings) as client, pytest.raises(NoDaemon, match=r"does not answer within 0\.2 s"):
            client.ask(Ping(), patience_s=0.2)
    finally:
        os.close(descriptor)
    with Client(daemon.settings) as client, pytest.raises(NoDaemon, match="no daemon runs"):
        client.ask(Ping(), patience_s=0.2)


def test_where_nobody_else_may_look_no_daemon_is_found(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    code = (
        "import os, sys; from pathlib import Path; from gpusched.control.place import listener; import socket\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "print(listener(Path(sys.argv[1])))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "closed" / "control.sock"], capture_output=True, text=True, check=False
    )

    assert told.stdout == "None\n", told.stderr


def test_ten_thousand_requests_leave_no_descriptor_thread_or_memory_behind(daemon: Daemon) -> None:
    daemon.start()
    pid = daemon.pid  # read once: each time it connects to the daemon, where that descriptor stays a moment longer

    def held(name: str) -> int:
        return len(list(Path(f"/proc/{pid}/{name}").iterdir()))

    client = daemon.client()
    client.ask(Ping())
    before, memory = {name: held(name) for name in ("fd", "task")}, resident_mib(pid)
    for _ in range(5000):
        client.ask(Ping())
        client.ask(ListJobs())
    until(lambda: all(held(name) <= number for name, number in before.items()), f"no more than {before} are held")
    assert resident_mib(pid) - memory < 8


DYING = """
import pathlib, socket, sys, time
path = pathlib.Path(sys.argv[1])
path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
door = socket.socket(socket.AF_UNIX)
door.bind(str(path))
door.listen()
print("listens", flush=True)
for _ in range(int(sys.argv[2])):
    kept = door.accept()
"""


@pytest.mark.parametrize("connections", [1, 2, 3])
def test_a_daemon_that_ends_while_it_is_asked_whether_it_is_there_is_followed_by_another(
    daemon: Daemon, connections: int
) -> None:
    argv = [sys.executable, "-c", DYING, str(control_socket(daemon.settings)), str(connections)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as dying:  # it listens, and ends as soon as it is asked
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"listens\n"
        assert daemon.command.run("daemon", "start").returncode == 0
    assert daemon.pid not in {0, dying.pid}
    assert daemon.pong()
