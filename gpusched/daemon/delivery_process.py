"""How the daemon starts a process that delivers notifications: apart from itself, and outside its sandbox.

Under systemd it is a unit of its own, as a job is: the daemon's may have neither a network nor a home to write to.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpusched.daemon.starter import is_unit
from gpusched.interpreter import own_command
from gpusched.notifications.destination import PREFIX, Request
from gpusched.settings import Settings

__all__ = ["SpawnDelivery", "delivery_spawner"]

SpawnDelivery = Callable[[Request], tuple[int, int]]
"""Starts a delivery; its pid, and what its answers are read from, without a wait. Raises OSError."""

_MODULE: Final = "gpusched.notifications"
_NOT_INHERITED: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_OF_SYSTEMD: Final = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "PATH")
_MARGIN_S: Final = 15.0


def delivery_spawner(settings: Settings, environ: Mapping[str, str], limit: tuple[int, int]) -> SpawnDelivery:
    """Return what starts deliveries for a daemon with the environment `environ`; they may open `limit` files."""
    as_unit = is_unit(environ)
    kept = {name: value for name, value in environ.items() if not name.startswith(PREFIX)}
    own = {name: value for name, value in kept.items() if name in _OF_SYSTEMD or not as_unit}
    for name in _NOT_INHERITED:
        own.pop(name, None)
    proxies = {name: value for name, value in kept.items() if name in _PROXIES}  # which may hold a password

    def spawn(request: Request) -> tuple[int, int]:
        command = own_command(_MODULE)
        if as_unit:  # systemd sets its limits
            longest_s = len(request.parcels) * (request.limit_s + _MARGIN_S)
            command = _in_unit(command, settings.environment() | {"PATH": environ.get("PATH", os.defpath)}, longest_s)
        more = {"environ": proxies} if as_unit else {"files": limit}
        given = msgspec.structs.replace(request, **more)
        return _spawn(command, own, msgspec.msgpack.encode(given))

    return spawn


def _spawn(command: list[str], environ: Mapping[str, str], content: bytes) -> tuple[int, int]:
    """Start a command that finds `content` on its standard input: a file without a name, as a pipe may be too small."""
    given = os.memfd_create("notifications", os.MFD_CLOEXEC)
    inner, outer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(inner, False)
    try:
        with os.fdopen(os.dup(given), "wb") as file:
            file.write(content)
        os.lseek(given, 0, os.SEEK_SET)
        actions = [
            (os.POSIX_SPAWN_DUP2, given, 0),
            (os.POSIX_SPAWN_DUP2, outer, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        program = shutil.which(command[0], path=environ.get("PATH", os.defpath)) or command[0]
        return os.posix_spawn(program, command, environ, file_actions=actions, setsid=True, setsigmask=[]), inner
    except BaseException:
        os.close(inner)
        raise
    finally:
        os.close(given)
        os.close(outer)


def _in_unit(command: list[str], environ: Mapping[str, str], longest_s: float) -> list[str]:
    """Return the command that runs another in a new unit, with these streams. systemd replaces what follows a `$`."""
    return [
        "systemd-run",
        *("--user", "--quiet", "--collect", "--pipe", "--wait", "--service-type=exec"),
        "--description=gpusched: notifications",
        f"--property=RuntimeMaxSec={longest_s:.0f}",
        *(f"--setenv={name}={value}" for name, value in environ.items()),
        "--",
        *(word.replace("$", "$$") for word in command),
    ]
