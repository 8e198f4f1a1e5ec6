"""Three hosts and a login host on one machine: network namespaces on a bridge, with names and addresses of their own.

It needs root and `ip` (Debian: iproute2). One set of hosts at a time, because they have fixed addresses: others wait.
"""

import contextlib
import fcntl
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.network.hosts import reason_for_no_hosts

__all__ = ["LOGIN", "NODES", "Node", "free_port", "nodes_on_a_bridge"]

NODES: Final = ("n1", "n2", "n3")
LOGIN: Final = "10.78.0.1"
_BRIDGE: Final = "gpscluster"
_LOCK: Final = Path("/run/gpusched-test-cluster.lock")


class Node:
    """One host, `n1` at 10.78.0.11 and so on. `hosts` is what its processes have as /etc/hosts."""

    def __init__(self, number: int, hosts: Path) -> None:
        self.name, self.address = NODES[number - 1], f"10.78.0.1{number}"
        self.space, self._cable, self._hosts = f"gpsc-{self.name}", f"gpsc{number}", hosts

    def command(self, *argv: str) -> list[str]:
        """Return what runs `argv` on this host. /sys stays as it is: `ip netns exec` would hide the cgroups."""
        inside = 'mount --bind "$1" /etc/hosts; hostname "$2"; shift 2; exec "$@"'
        there = ["nsenter", f"--net=/run/netns/{self.space}", "unshare", "--uts", "--mount", "sh", "-c", inside, "sh"]
        return [*there, str(self._hosts), self.name, *argv]

    def start(self, *argv: str, **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process there, in a session of its own."""
        return subprocess.Popen(self.command(*argv), start_new_session=True, **options)

    def pids(self) -> list[int]:
        """Return the processes of this host."""
        told = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in told.split()]

    def pids_of(self, words: str) -> list[int]:
        """Return those whose command line has `words` in it."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if words in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    found.append(pid)
        return found

    def cut(self) -> None:
        """Pull the cable: nobody is told."""
        _ip("link", "set", self._cable, "down")

    def heal(self) -> None:
        """Put it back."""
        _ip("link", "set", self._cable, "up")

    def make(self) -> None:
        """Make the namespace and its cable to the bridge."""
        _ip("netns", "add", self.space)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        _ip("link", "set", self._cable, "master", _BRIDGE, "up")
        _ip("-n", self.space, "link", "set", "lo", "up")
        _ip("-n", self.space, "address", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self.space, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Kill what runs there, and remove it."""
        with contextlib.suppress(subprocess.CalledProcessError):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        subprocess.run(["ip", "link", "del", self._cable], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.space], capture_output=True, check=False)


@contextlib.contextmanager
def nodes_on_a_bridge() -> Iterator[Sequence[Node]]:
    """Yield the three hosts; this one is the fourth on their bridge, at LOGIN."""
    why = reason_for_no_hosts()
    if why is not None:
        pytest.skip(why)
    with tempfile.TemporaryDirectory() as directory, _LOCK.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        hosts = Path(directory) / "hosts"
        nodes = [Node(number, hosts) for number in (1, 2, 3)]
        lines = ["127.0.0.1 localhost", f"{LOGIN} {os.uname().nodename}"]
        hosts.write_text("\n".join([*lines, *(f"{node.address} {node.name}" for node in nodes), ""]))
        _remove(nodes)
        try:
            _ip("link", "add", _BRIDGE, "type", "bridge")
            _ip("address", "add", f"{LOGIN}/24", "dev", _BRIDGE)
            _ip("link", "set", _BRIDGE, "up")
            for node in nodes:
                node.make()
            yield nodes
        finally:
            _remove(nodes)


def free_port() -> int:
    """Return one of the login host: a cluster whose test somebody killed may still have others."""
    with socket.create_server((LOGIN, 0)) as server:
        return int(server.getsockname()[1])


def _remove(nodes: Sequence[Node]) -> None:
    """Also what a run before this one left, which was killed."""
    known = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=False).stdout.split()
    for node in nodes:
        if node.space in known:
            node.remove()
    subprocess.run(["ip", "link", "del", _BRIDGE], capture_output=True, check=False)
    deadline = time.monotonic() + 10
    while subprocess.run(["ip", "link", "show", _BRIDGE], capture_output=True, check=False).returncode == 0:
        assert time.monotonic() < deadline, f"{_BRIDGE} cannot be removed"
        time.sleep(0.05)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
