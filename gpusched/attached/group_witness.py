"""A process in this one's group that does nothing but get the signals that are sent to the whole group.

A signal does not show whether it was sent to one process or to its group. What the witness has had as well, from the
same sender, went to the group, and so to the command. The kernel sends a signal to all of a group under its lock of the
process table, which setpgid(2) takes as well: once that has returned, the witness has had what this process has had.
"""

import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from gpusched.linux.processes import die_with

__all__ = ["GroupWitness"]

_PATIENCE_S: Final = 1.0  # it is halted with the whole group, or by what halts processes


class GroupWitness:
    """The process, forked from this one, in which the signals `numbers` must be blocked. It ends with this one."""

    def __init__(self, numbers: Iterable[int]) -> None:
        inner, self._ask = os.pipe()
        self._answer, outer = os.pipe()
        me = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(me, inner, outer, tuple(numbers))
        os.close(inner)
        os.close(outer)
        self._had: set[tuple[int, int]] = set()

    def has_had(self, number: int, sender: int) -> bool:
        """Return whether the signal `number` of the process `sender` that has come here went to the whole group."""
        with suppress(OSError):
            os.setpgid(0, os.getpgrp())
        os.write(self._ask, b"?")
        if select.select([self._answer], [], [], _PATIENCE_S)[0]:
            for line in os.read(self._answer, select.PIPE_BUF).splitlines():
                found, by = line.split()
                self._had.add((int(found), int(by)))
        found_now = (number, sender) in self._had
        self._had.discard((number, sender))
        return found_now

    def close(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self._ask)
        os.close(self._answer)


def _serve(parent: int, ask: int, answer: int, numbers: tuple[int, ...]) -> None:
    """Answer each question by the signals that came since the last one, and their senders."""
    try:
        die_with(parent)
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (as elsewhere for /proc)
            if descriptor not in (ask, answer):  # a reader of the command's output waits for its end
                with suppress(OSError):  # the listing's own
                    os.close(descriptor)
        while os.read(ask, 1):
            lines = []
            while (info := signal.sigtimedwait(numbers, 0)) is not None:
                lines.append(b"%d %d\n" % (info.si_signo, info.si_pid))
            os.write(answer, b"".join(lines) or b"0 0\n")
    finally:
        os._exit(0)
