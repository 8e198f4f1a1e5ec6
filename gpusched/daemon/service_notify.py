"""What the daemon sends to a service manager that waits for it: sd_notify(3), one datagram each. Without one, nothing.

The variables are those of sd_notify(3) and sd_watchdog_enabled(3): NOTIFY_SOCKET is a path, or the name of an abstract
socket after `@`; WATCHDOG_USEC is how long, in microseconds, the process WATCHDOG_PID may be silent.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

__all__ = ["Notifier"]


class Notifier:
    """Talks to the service manager that the variables in `environ` name. `clock` in monotonic seconds.

    It raises nothing and waits for nothing: a manager that does not listen must not hold up the daemon.
    """

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        name = environ.get("NOTIFY_SOCKET", "") if _is_addressed(environ, "SYSTEMD_EXEC_PID") else ""
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._period_s = _watchdog_s(environ) / 2 if self._address else 0.0
        self._due = clock()
        self._status = ""

    @property
    def longest_sleep_s(self) -> float | None:
        """How long the loop may sleep before it calls `ping` again; None without a watchdog."""
        return self._period_s / 2 or None

    def ready(self) -> None:
        """Report that the daemon serves: until then, `systemctl start` waits."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Report that the daemon ends because it was asked to."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows, if it is another one."""
        if text != self._status:
            self._status = text
            self._send("STATUS=" + text.replace("\n", " "))

    def ping(self) -> None:
        """Report that the loop turns, if half of the watchdog's time is over."""
        if self._period_s and self._clock() >= self._due:
            self._due = self._clock() + self._period_s
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one,
        ):
            one.setblocking(False)
            one.sendto(message.encode(errors="replace"), self._address)


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Return how long this process may be silent; 0 without limit."""
    microseconds = environ.get("WATCHDOG_USEC", "") if _is_addressed(environ, "WATCHDOG_PID") else ""
    return int(microseconds) / 1e6 if microseconds.isascii() and microseconds.isdigit() else 0.0


def _is_addressed(environ: Mapping[str, str], variable: str) -> bool:
    """Return whether the variables are this process's own, and not inherited from a process that started it."""
    return environ.get(variable, str(os.getpid())) == str(os.getpid())
