"""The ssh to another host: how its end is seen, what it is told, and what of it goes on."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpusched.web.tunnel import Target, Tunnel
from tests.cli.command import Command
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn
from tests.web.server import Server
from tests.web.ssh import SSH, SSHD, Sshd
from tests.web.test_remote import moment, servers_of

Serve = Callable[..., Server]


def ssh_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this script found as `ssh`."""
    folder.mkdir()
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def why_away(tunnel: Tunnel) -> str:
    """Return why it is away after the first try."""
    first = tunnel.away
    keeping = asyncio.create_task(tunnel.keep())
    try:
        await tunnel.change(first, PATIENCE_S)
        assert tunnel.away is not None
        return tunnel.away.why
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


def test_the_end_of_ssh_is_seen_while_a_program_of_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'sleep 600 >/dev/null </dev/null &\necho $! > going-on\necho "no route to lab2" >&2\nexit 255'
    ssh_in(tmp_path / "bin", script, monkeypatch)
    assert asyncio.run(why_away(Tunnel(Target("lab2", "lab2")))) == "no route to lab2"
    pid = int((tmp_path / "bin" / "going-on").read_text())
    os.kill(pid, signal.SIGKILL)  # it was there all the time


def test_a_host_where_nothing_gets_ready_is_away_and_its_ssh_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_in(tmp_path / "bin", "echo $$ > pid\necho ready-to-run\nexec sleep 600", monkeypatch)
    tunnel = Tunnel(Target("lab2", "lab2"), ready_s=3)
    assert asyncio.run(why_away(tunnel)) == "nothing was ready there after 3 s"
    pid = (tmp_path / "bin" / "pid").read_text().strip()
    until(lambda: not Path(f"/proc/{pid}").exists(), "its ssh has ended")


def test_of_a_host_that_complains_a_lot_the_last_line_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh_in(tmp_path / "bin", "head -c 300000 /dev/zero >&2\necho >&2\necho the last >&2", monkeypatch)
    assert asyncio.run(why_away(Tunnel(Target("lab2", "lab2")))) == "the last"


def test_the_server_there_is_told_again_and_again_that_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_in(tmp_path / "bin", "read beat && read beat && read beat && echo beaten >&2", monkeypatch)
    assert asyncio.run(why_away(Tunnel(Target("lab2", "lab2"), beat_s=0.05))) == "beaten"


SERVE = """
import sys
from gpusched.web.listening import at_socket
from gpusched.web.serve import serve_until_input_ends
serve_until_input_ends(at_socket(sys.argv[1]), lambda: print("ready", flush=True), float(sys.argv[2]))
"""


def started(path: Path, silent_s: float) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(path), str(silent_s)], stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_a_server_that_nobody_wants_any_more_ends_though_its_input_stays_open(tmp_path: Path) -> None:
    with started(tmp_path / "socket", 0.3) as process:
        assert process.wait(PATIENCE_S) == 0
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_server_whose_terminal_is_closed_leaves_no_socket(number: int, tmp_path: Path) -> None:
    with started(tmp_path / "socket", PATIENCE_S) as process:
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
    assert not (tmp_path / "socket").exists()


def test_a_server_ends_though_its_input_breaks(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-c", SERVE, str(tmp_path / "socket"), str(PATIENCE_S)]
    with subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno()) as process:
        theirs.close()
        until(lambda: ours.recv(100, socket.MSG_PEEK).endswith(b"\n"), "it listens")
        ours.close()  # with an output that was not read: the other end is reset
        assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def logged_in(tmp_path: Path) -> Iterator[Sshd]:
    """A host that lets nobody log in, with one connection that is open (ControlMaster): as after a code was typed."""
    sshd = Sshd(tmp_path / "ssh")
    control = f"  ControlPath {tmp_path}/control\n"
    with (tmp_path / "ssh" / "ssh_config").open("a") as file:
        file.write(control)
    sshd.start()
    ssh = str(sshd.path / "ssh")
    subprocess.run([ssh, "-M", "-f", "-N", "lab2"], check=True)
    (tmp_path / "ssh" / "mine.pub").write_text("")
    refused = subprocess.run(
        [ssh, "-S", "none", "-o", "BatchMode=yes", "lab2", "true"], check=False, capture_output=True
    )
    assert refused.returncode == 255
    yield sshd
    subprocess.run([ssh, "-O", "exit", "lab2"], check=False, capture_output=True)
    sshd.stop()


def listeners(folder: str) -> int:
    """How many sockets of tunnels in a folder ssh listens at, also where their names are gone."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return sum(line[3] == "00010000" and line[-1].startswith(f"{folder}/gpusched-web-") for line in lines)


@pytest.mark.skipif(None in (SSH, SSHD), reason="sshd is not installed")
def test_a_connection_that_a_person_has_opened_is_used_again_and_again(
    serve: Serve, logged_in: Sshd, stand_in: StandIn, tmp_path: Path
) -> None:
    host = stand_in.host("gpus 3\n")
    (tmp_path / "there").mkdir()
    there = Command(tmp_path / "there", {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")})
    short = tempfile.mkdtemp(prefix="gps-", dir="/tmp")  # of this test alone
    try:
        server = serve("--host", f"lab2=ssh://lab2{logged_in.program(there)}", path=logged_in.path, TMPDIR=short)
        cookie = server.log_in(server.address())
        until(lambda: len(moment(server, cookie, "lab2").get("devices", [])) == 3, "it is seen")
        [pid] = servers_of(there)
        os.kill(pid, signal.SIGKILL)
        until(lambda: servers_of(there) not in ([], [pid]), "it is connected again")
        until(lambda: len(moment(server, cookie, "lab2").get("devices", [])) == 3, "it is seen again")
        until(lambda: listeners(short) == 1, "the first forwarding has gone from the connection")
        server.stop()
        until(lambda: not servers_of(there), "the server there has ended")
        until(lambda: listeners(short) == 0, "so has the second")
    finally:
        there.end()
        shutil.rmtree(short)
