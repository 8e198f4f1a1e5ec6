"""A real sshd on loopback for a test, and an `ssh` that reaches it without asking: other hosts of the page."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.command import Command
from tests.patience import until
from tests.ports import free_port

SSHD: Final = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SSH: Final = shutil.which("ssh")


STUB: Final = """#!{python}
import http.server, pathlib, select, socketserver, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        file = pathlib.Path(__file__).parent / path.strip("/")
        streams = path == "/events"
        kind = "text/event-stream" if streams else self.path.partition("replica=")[2].replace("%2F", "/")
        content = file.read_bytes() if file.is_file() else b"" if streams else b"{{}}"
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if file.is_file() and not streams else kind)
        if not streams:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        while streams and not select.select([self.connection], [], [], 0.05)[0]:
            before, content = content, file.read_bytes() if file.is_file() else b""
            self.wfile.write(content if content != before else b"")
    def address_string(self):
        return ""
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
with Server(sys.argv[-1], Answers) as server:
    print("ready", flush=True)
    server.serve_forever()
"""


def stub_in(folder: Path) -> Path:
    """Return a program for another host that answers with the files in that folder, whatever is in them.

    `events` is sent again when it has changed.
    """
    folder.mkdir()
    stub = folder / "stub"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o700)
    return stub


class Sshd:
    """An sshd of this user; in `path` there is an `ssh` that knows it as `lab2`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path, self._folder = folder / "bin", folder
        self.path.mkdir()
        for key in ("host", "mine"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        self.port = free_port()
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/mine.pub\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        )
        (folder / "ssh_config").write_text(
            f"Host lab2\n  HostName 127.0.0.1\n  Port {self.port}\n"
            f"Host *\n  IdentityFile {folder}/mine\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {folder}/known\n  LogLevel ERROR\n"
        )
        ssh = self.path / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Listen."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root keeps to
        assert SSHD is not None
        argv = [SSHD, "-D", "-e", "-f", str(self._folder / "sshd_config")]
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(argv, stderr=log, process_group=0)
        until(self._answers, "sshd listens")
        login = subprocess.run(
            [str(self.path / "ssh"), "-o", "BatchMode=yes", "lab2", "true"], capture_output=True, check=False
        )
        if login.returncode:  # where the account has no password that could be typed, for one
            self.stop()
            pytest.skip(f"sshd lets this user not in: {login.stderr.decode().strip()}")

    def stop(self) -> None:
        """End it, and each connection: its processes have a group, or a session, of their own."""
        if self._process is not None:
            for pid in self._processes(self._process.pid):
                subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
            self._process.wait()
            self._process = None

    def program(self, command: Command) -> Path:
        """Return a `gpusched` that is on the host of `command`, whatever the environment of a login has."""
        path = self._folder / "gpusched"
        kept = {name: value for name, value in command.env.items() if name not in {"PATH", "PWD", "_"}}
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in kept.items())
        path.write_text(f'#!/bin/sh\nexec env {words} {shlex.join(command.argv)} "$@"\n')
        path.chmod(0o700)
        return path

    def _answers(self) -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0

    def _processes(self, pid: int) -> list[int]:
        """A process and all that it has started, the latest first."""
        found = [pid]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if parent == pid:
                    found = [*self._processes(int(entry.name)), *found]
        return found
