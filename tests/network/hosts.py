"""Other hosts on one machine: network namespaces with addresses of their own, and a link between two that can fail.

It needs root and `ip` (Debian: iproute2). Two kinds of link: a veth pair, as quick as the kernel makes it, and a relay
of our own between two tun devices (relay.py), which can be cut, delayed, and made to lose packets: not every kernel
has netem.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import pytest

__all__ = ["Host", "Relay", "joined_by_a_relay", "joined_by_veth", "reason_for_no_hosts"]

ROOT: Final = Path(__file__).parents[2]
_numbers: Final = itertools.count()


def reason_for_no_hosts() -> str | None:
    """Return why this machine cannot have namespaces, None if it can."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "needs ip and nsenter (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"gs{os.getpid()}probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=False)
    for kind in (["bridge"], ["veth", "peer", "name", f"{name[:13]}b"]):
        if subprocess.run(["ip", "link", "add", name[:13], "type", *kind], capture_output=True, check=False).returncode:
            return f"this machine allows no network device of the type {kind[0]}"
        subprocess.run(["ip", "link", "del", name[:13]], check=False)
    return None


class Host:
    """A namespace called `name` with `address`. `as_host` is what its processes take the host's name to be."""

    def __init__(self, name: str, address: str, as_host: str) -> None:
        self.name, self.address, self.as_host = name, address, as_host

    def command(self, *argv: str) -> list[str]:
        """Return what runs `argv` on this host."""
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.as_host}; exec "$@"', "sh"]
        return ["nsenter", f"--net=/run/netns/{self.name}", *named, *argv]

    def python(self, *argv: str, **options: Any) -> "subprocess.Popen[str]":
        """Start this interpreter there, with text streams."""
        return subprocess.Popen(self.command(sys.executable, *argv), text=True, cwd=ROOT, **options)

    def pids(self) -> list[int]:
        """Return the processes of this host."""
        told = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in told.split()]


class Relay:
    """The link's own process: everything between the two hosts goes through it."""

    def __init__(self, one: Host, other: Host) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.network.relay", one.name, other.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._answers: IO[str] = self._process.stdout  # type: ignore[assignment]  # it is a pipe
        assert self._answers.readline() == "ready\n"

    def set(self, *, up: bool = True, delay_s: float = 0.0, loss: float = 0.0) -> None:
        """Be so from now on: `up` False loses everything, without a word to either side."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{int(up)} {delay_s} {loss}\n")
        self._process.stdin.flush()
        assert self._answers.readline() == "so\n"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def joined_by_veth() -> Iterator[tuple[Host, Host]]:
    """Two hosts with a cable between them."""
    with _two_hosts() as (one, other):
        _ip("link", "add", "eth0", "netns", one.name, "type", "veth", "peer", "name", "eth0", "netns", other.name)
        for host in (one, other):
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
        yield one, other


@contextlib.contextmanager
def joined_by_a_relay() -> Iterator[tuple[Host, Host, Relay]]:
    """Two hosts with a link that does as it is told."""
    with _two_hosts() as (one, other):
        relay = Relay(one, other)
        try:
            for host in (one, other):
                _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "tun0")
                _ip("-n", host.name, "link", "set", "tun0", "up")
            yield one, other, relay
        finally:
            relay.close()


@contextlib.contextmanager
def _two_hosts() -> Iterator[tuple[Host, Host]]:
    why = reason_for_no_hosts()
    if why is not None:
        pytest.skip(why)
    mark = f"gs{os.getpid()}x{next(_numbers)}"
    hosts = Host(f"{mark}a", "10.77.0.1", "lab1"), Host(f"{mark}b", "10.77.0.2", "lab2")
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            for pid in host.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            subprocess.run(["ip", "netns", "del", host.name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
