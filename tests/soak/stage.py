"""What the parts of a soak share: the host, the commands, the jobs, chance, and things to be done later."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.argv import GPUSCHED
from tests.soak.commands import Commands, Result
from tests.soak.host import Host
from tests.soak.jobs import Job, Jobs
from tests.soak.journal import Journal
from tests.soak.observer import Observer
from tests.soak.processes import read_process

__all__ = ["Stage"]

HARM = ("daemon", "reboot", "full disk", "full inodes", "mismatch", "clock")


@dataclass
class Stage:
    """One run. `storm`: the daemon may be killed now. `alone`: in a pid namespace. `spared`: pids left unharmed."""

    host: Host
    journal: Journal
    commands: Commands
    jobs: Jobs
    observer: Observer
    random: random.Random
    alone: bool
    bystander: int
    spared: set[int] = field(default_factory=set)
    storm: bool = False
    _later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in so many seconds, or at the end of the soak if that comes first."""
        self._later.append((time.monotonic() + seconds, next(self._order), action))

    def do_what_is_due(self, *, all_of_it: bool = False) -> None:
        """What these actions put off in turn is done in its time."""
        waiting = sorted(self._later)
        due = [one for one in waiting if all_of_it or one[0] <= time.monotonic()]
        self._later = waiting[len(due) :]
        for _, _, action in due:
            action()

    def gpusched(
        self, *words: str, label: str = "", allowed: Sequence[int] = (0,), then: Callable[[Result], None] | None = None
    ) -> None:
        """Type a command; a code beyond `allowed` is a violation unless the soak itself did harm meanwhile."""

        def check(result: Result) -> None:
            self.expect(result, allowed)
            if then is not None:
                then(result)

        self.commands.start([*GPUSCHED, *words], label or words[0], check)

    def expect(self, result: Result, allowed: Sequence[int]) -> None:
        self.journal.checks["exit codes of commands"] += 1
        harmed = self.journal.during(result.begun, result.ended, *HARM)
        if result.code not in allowed and not (harmed and result.code in (1, 3, 4, 5, -9)):
            self.journal.violation("every command answers", str(result))

    def pids_of(self, job: Job) -> dict[str, int]:
        """The pids that `ps` listed last: `supervisor`, `guard`, and each replica by its name."""
        one = self.observer.told.get(job.id or "", {})
        found = {each["name"]: each["pid"] for each in one.get("replicas", ()) if each["pid"]}
        supervisor = one.get("supervisor_pid")
        if supervisor:
            found["supervisor"] = supervisor
            found["guard"] = self._parent(supervisor)
        return {name: pid for name, pid in found.items() if pid > 1 and self._is_of(pid, job)}

    def _is_of(self, pid: int, job: Job) -> bool:
        """Whether the pid is still a process of that job: numbers are used again."""
        try:
            about = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return job.token.encode() in about or f"/jobs/{job.id}\0".encode() in about

    @staticmethod
    def _parent(pid: int) -> int:
        try:
            return read_process(pid).parent
        except OSError:
            return 0
