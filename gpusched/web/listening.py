"""Where the server listens: loopback, all addresses with TLS, or a socket in the file system."""

import os
import re
import socket
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from gpusched.errors import HostFault, UsageError
from gpusched.web.guard import Site, at_address, on_loopback

__all__ = ["BEAT_S", "READY", "Listening", "at_socket", "behind_proxy", "here", "with_tls"]

READY: Final = "ready"
"""What a server at a socket prints once it listens."""

BEAT_S: Final = 10.0
"""How often it gets something to read. Without, it ends after six times as long: who wanted it went without a word."""

_LOOPBACK: Final = "127.0.0.1"
_FIRST: Final = 8470
_TRIED: Final = 20
_HTTPS: Final = 443
_MOST_PORT: Final = 65_535
_ADDRESS: Final = re.compile(r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?", re.ASCII | re.IGNORECASE)


class Listening(NamedTuple):
    """A socket that listens, and the site that is served there. `certificate` and `key`: files, where it speaks TLS."""

    socket: socket.socket
    site: Site
    certificate: str | None = None
    key: str | None = None


def here(port: int | None) -> Listening:
    """Listen on loopback at `port`, or at the first free one of some. Raises HostFault."""
    found = _on_loopback(port)
    return Listening(found, on_loopback(found.getsockname()[1]))


def behind_proxy(address: str, port: int | None) -> Listening:
    """Listen on loopback, as `here` does, for a proxy of this host: browsers open its `address`, and it speaks TLS.

    Raises UsageError for an address without TLS, and HostFault.
    """
    name, _ = _address(address, "--behind-proxy")
    found = _on_loopback(port)
    return Listening(found, at_address(name, found.getsockname()[1]))


def with_tls(address: str, port: int | None, certificate: str, key: str) -> Listening:
    """Listen at all addresses of this host, with TLS: browsers open `address`, such as https://lab.example:8470.

    `port`: where it is not the one of the address. `certificate` and `key`: files in PEM. Raises UsageError for an
    address without TLS and for other files, and HostFault.
    """
    name, number = _address(address, "--address")
    for path in (certificate, key):
        if not os.access(path, os.R_OK) or not Path(path).is_file():
            raise UsageError(f"{path}: no file that can be read", "name a certificate and its key, in PEM")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise UsageError(
            f"{certificate} and {key} are no certificate and its key: {why}", "in PEM, the key without a passphrase"
        ) from None
    return Listening(_on_all(port or number), at_address(name, port or number), certificate, key)


def _address(typed: str, option: str) -> tuple[str, int]:
    """Return an address as browsers name it, and its port. Raises UsageError."""
    found = _ADDRESS.fullmatch(typed)
    port = int(found[2] or _HTTPS) if found is not None else 0
    if found is None or not 1 <= port <= _MOST_PORT:
        raise UsageError(f"{option}: {typed!r} is no address with TLS", "such as https://lab.example:8470")
    return f"https://{found[1].lower()}" + ("" if port == _HTTPS else f":{port}"), port


def at_socket(path: str) -> Listening:
    """Listen at a socket in the file system, which this user alone may open. Raises HostFault."""
    found = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        found.bind(path)
        found.listen()
    except OSError as error:
        found.close()
        raise HostFault(f"{path}: {error.strerror}", "name a path in a directory of yours that is free") from None
    finally:
        os.umask(before)
    return Listening(found, Site("http://gpusched", frozenset({"gpusched"})))


def _on_all(port: int) -> socket.socket:
    dual = socket.has_dualstack_ipv6()
    try:
        if dual:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise HostFault(f"port {port}: {error.strerror}", "give another one: --port 9000") from None


def _on_loopback(port: int | None) -> socket.socket:
    wanted = range(_FIRST, _FIRST + _TRIED) if port is None else (port,)
    for number in wanted:
        try:
            return socket.create_server((_LOOPBACK, number))  # it listens before the address is printed
        except OSError as error:
            why = error.strerror
    raise HostFault(f"port {wanted[-1]} of {_LOOPBACK}: {why}", "give another one: --port 9000")
