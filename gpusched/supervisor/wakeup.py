"""Sleep until something happens to a supervisor: a signal, the end of its launcher, or what the caller waits for."""

import contextlib
import os
import selectors
import signal
from types import FrameType
from typing import Final

from gpusched.linux.processes import GUARD_GONE, STOP_PASSED_ON, start_time
from gpusched.model.job import ProcessIdentity

__all__ = ["Wakeup"]


class Wakeup:
    """Sleep that ends early when a signal comes or the launcher ends. Signals do nothing else than to set a flag.

    SIGHUP does nothing, by a handler: what is ignored would stay so in replicas.
    The handled signals are unblocked at the end, so that none that came earlier is lost.
    """

    _COUNTED: Final = (signal.SIGTERM, signal.SIGINT)
    _WAKING: Final = (signal.SIGCHLD, signal.SIGHUP, GUARD_GONE)

    def __init__(self, launcher: ProcessIdentity | None) -> None:
        self._own_stops = self._passed_on = 0
        self._launcher = launcher
        self._selector = selectors.DefaultSelector()
        self._inner, outer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._inner, selectors.EVENT_READ)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        for number in self._COUNTED:
            signal.signal(number, self._count)
        signal.signal(STOP_PASSED_ON, self._count_passed_on)
        for number in self._WAKING:
            signal.signal(number, lambda _number, _frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*self._COUNTED, STOP_PASSED_ON, *self._WAKING))
        if launcher is not None:
            with contextlib.suppress(OSError):  # gone, or a kernel before 5.3: then sleeping only lasts longer
                self._selector.register(os.pidfd_open(launcher.pid), selectors.EVENT_READ)

    @property
    def stops(self) -> int:
        """How often a stop was asked for: SIGTERM and SIGINT, here or at the guard, which passes them on.

        What is sent to a whole control group or process tree, as systemd and scancel do, comes both ways, and is one.
        """
        return max(self._own_stops, self._passed_on)

    def sleep(self, seconds: float, also: int | None = None) -> None:
        """Return after `seconds`, or as soon as there was a signal, the launcher ended, or `also` can be read from."""
        if also is not None:
            self._selector.register(also, selectors.EVENT_READ)
        for key, _ in self._selector.select(seconds):
            if key.fd == self._inner:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._inner, 4096):
                        pass
            elif key.fd != also:  # a pidfd stays readable for ever
                self._selector.unregister(key.fd)
                os.close(key.fd)
        if also is not None:
            self._selector.unregister(also)

    def launcher_gone(self) -> bool:
        """Return whether the process that this job must not outlive has ended."""
        return self._launcher is not None and start_time(self._launcher.pid) != self._launcher.start

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self._own_stops += 1

    def _count_passed_on(self, _number: int, _frame: FrameType | None) -> None:
        self._passed_on += 1
