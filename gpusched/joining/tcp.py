"""Addresses of jobs on the network: what `tcp://HOST:PORT` may be, and by which one others would reach this host."""

import ipaddress
import re
import socket
from contextlib import suppress
from typing import Final, NamedTuple, Self

from gpusched.errors import UsageError

__all__ = ["Tcp", "reachable"]

_FORM: Final = re.compile(
    r"tcp://(?P<host>\[[0-9A-Za-z.%]*:[0-9A-Za-z:.%]*\]|[^\s:/\[\]]+):(?P<port>\d{1,5})", re.ASCII
)
_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_LAST_PORT: Final = 65_535
_OUTSIDE: Final = {False: "192.0.2.1", True: "2001:db8::1"}  # examples (RFC 5737, RFC 3849): nothing is sent there


class Tcp(NamedTuple):
    """One end of a TCP connection. `host` is an address or a name, an IPv6 address without its brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, what: str) -> Self:
        """Read `tcp://10.0.0.1:5555`, `tcp://[::1]:5555` or `tcp://lab2:5555`. Raises UsageError, naming `what`."""
        found = _FORM.fullmatch(text)
        hint = "give tcp://HOST:PORT, such as tcp://10.0.0.1:5555"
        if found is None:
            raise UsageError(f"{what}: {text!r} is no address", hint)
        host, port = found["host"].strip("[]"), int(found["port"])
        if port == 0:
            hint = "name the port, such as 5555: hosts that join have to know it, after a restart too"
            raise UsageError(f"{what}: port 0 is whichever is free", hint)
        if port > _LAST_PORT:
            raise UsageError(f"{what}: there is no port {port}", "ports go from 1 to 65535")
        if _address(host) is None and not _NAME.fullmatch(host):
            raise UsageError(f"{what}: {host!r} is no address and no host's name", hint)
        return cls(host, port)

    @classmethod
    def to_listen(cls, text: str, what: str) -> Self:
        """Read what a learner may bind: an address of this host, or 0.0.0.0, * or [::] for all. Raises UsageError."""
        named = text.replace("//*:", "//0.0.0.0:").replace("//localhost:", "//127.0.0.1:")
        found = cls.parse(named, what)
        if _address(found.host) is None:
            problem = f"{what}: {found.host!r} is a name, and one can only listen at an address"
            raise UsageError(problem, f"give an address of this host, or all: tcp://0.0.0.0:{found.port}")
        return found

    @property
    def endpoint(self) -> str:
        """The end as ZeroMQ takes it."""
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    @property
    def everywhere(self) -> bool:
        """Whether it stands for all addresses of a host."""
        address = _address(self.host)
        return address is not None and address.is_unspecified

    @property
    def loopback(self) -> bool:
        """Whether only this host can mean it."""
        address = _address(self.host)
        return self.host == "localhost" if address is None else address.is_loopback


def reachable(bound: Tcp) -> Tcp:
    """Return the address by which other hosts would reach what is bound so: for all addresses, the one of most use."""
    if not bound.everywhere:
        return bound
    version6 = ":" in bound.host
    return Tcp(_outgoing(version6=version6) or _outgoing(version6=False) or _any_other() or _name(), bound.port)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _outgoing(*, version6: bool) -> str | None:
    """Return the address that this host would use to reach the rest of the world, None if it has no route there."""
    family = socket.AF_INET6 if version6 else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_OUTSIDE[version6], 9))  # of a datagram socket: it only finds the route
        return str(probe.getsockname()[0])
    return None


def _any_other() -> str | None:
    """Return an IPv4 address of this host that is not its loopback, None if it has none."""
    import psutil

    with suppress(OSError):
        every = (one for found in psutil.net_if_addrs().values() for one in found if one.family == socket.AF_INET)
        return next((one.address for one in every if not ipaddress.ip_address(one.address).is_loopback), None)
    return None


def _name() -> str:
    return socket.gethostname()
