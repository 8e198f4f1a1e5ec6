"""The one command of an attached job: it joins the group of its launcher, so that a terminal treats both as one.

This process then leaves the terminal's session, in which it could pass for a shell that continues halted jobs.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.relatives import outliving
from gpusched.execution.spec import JobSpec, Start
from gpusched.linux.processes import Process, inherited
from gpusched.supervisor.process import Children, ProcessExit, Spared, SpawnError

__all__ = ["AttachedChild", "attached_child"]

_TO_GROUPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What a terminal or a person sends to whole groups; a shell ends with 128 + the number after its command did."""


class AttachedChild(Children):
    """The one command of a job that behaves as if `launcher` had started it: it is in the launcher's process group.

    What the terminal sends to the group (Ctrl-C, Ctrl-Z) reaches it without us. The launcher, and what stands beside it
    in a pipe, are in its group and session: so signals from here go to each process by itself.
    Signals that were ignored where the job was started (by nohup, or in the background of a script) stay so, and what
    was open there beyond the streams is the command's, but for the numbers that the streams have here.
    """

    _INHERITED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)

    def __init__(self, launcher: int, spared: Spared = lambda: lambda _: False) -> None:
        super().__init__(spared=spared)
        self._launcher = launcher
        self._own_session = os.getsid(0)
        self._passed = inherited()
        self._ignored = [number for number in self._INHERITED if signal.getsignal(number) is signal.SIG_IGN]

    def spawn(self, starts: Sequence[Start]) -> list[int | SpawnError]:
        """Start the one `spec.argv` in `spec.cwd` in the process group of the launcher, once.

        A parent in the same session and another group would keep the kernel from seeing that no process can wake a
        halted command (an orphaned process group, setpgid(2)): so it leaves that session, and must lead no group.
        """
        (start,) = starts
        try:
            group = os.getpgid(self._launcher)
        except ProcessLookupError:
            gone = f"process {self._launcher}, for which it was to run, is gone"
            return [SpawnError(message=f"{start.spec.argv[0]}: {gone}")]
        pid = self._start(start, group=group, ignored=self._ignored)
        if isinstance(pid, int):
            while self._passed:
                os.close(self._passed.pop())
            os.setsid()
        return [pid]

    def ask(self, pid: int, *, alone: bool) -> None:
        """Send SIGTERM to the command and its session, but not after a signal of the terminal, which all of it has had.

        A second one would abort what the first one has it save.
        """
        death = self._left.get(pid)
        if alone or death is None or not _by_group_signal(death):
            super().ask(pid, alone=alone)

    def _sessions(self, pid: int) -> set[int]:
        """Return the session that the command was started in, and the one that it leads if it has left that."""
        return {self._own_session, pid}

    def _signal(self, processes: Iterable[Process], number: int) -> None:
        for one in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, number)


def attached_child(directory: JobDirectory, spec: JobSpec) -> AttachedChild:
    """Return the command of an attached job. Raises HostFault for one that names no launcher."""
    if spec.launcher is None:
        raise HostFault(f"{spec.id} is attached to no process: its spec names no launcher", "start the command again")
    return AttachedChild(spec.launcher.pid, partial(outliving, str(directory.path)))


def _by_group_signal(death: ProcessExit) -> bool:
    return death.signal in _TO_GROUPS or (death.code or 0) - 128 in _TO_GROUPS  # the code is what a shell ends with
