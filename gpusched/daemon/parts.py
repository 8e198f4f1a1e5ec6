"""What the daemon consists of, in one value that its steps share."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gpusched.daemon.book import Book
from gpusched.daemon.devices import Devices
from gpusched.daemon.starts import Starts
from gpusched.daemon.waiting import Waiting
from gpusched.daemon.watch import Watch
from gpusched.settings import Settings
from gpusched.supervisor.lease_files import LeaseDirectory

__all__ = ["A_FLOOD", "Parts"]

A_FLOOD: Final = 4
"""Of so many submissions the times are kept, to tell a flood of them."""


@dataclass
class Parts:
    """The parts, and what passes between the steps of one turn. Times in `not_before` are monotonic seconds.

    `leases` returns the lease directory of this host, or with True that of described machines. `prepared`: jobs to be
    spawned once they are saved; `orders`: running jobs to be stopped once that is saved, and whether to kill; `kills`:
    the same for jobs that have not shown themselves. `why` tells of queued jobs why they wait, `hindrances` what kept
    them from it when their turn had come. `arrivals` are the times of the latest submissions.
    """

    settings: Settings
    book: Book
    devices: Devices
    starts: Starts
    leases: Callable[[bool], LeaseDirectory]
    waiting: Waiting = field(default_factory=Waiting)
    watch: Watch = field(default_factory=Watch)
    started: float = field(default_factory=time.time)
    prepared: list[str] = field(default_factory=list)
    orders: list[tuple[str, bool]] = field(default_factory=list)
    kills: dict[str, bool] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    hindrances: dict[str, str] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=A_FLOOD))
    over: bool = False
    look_at_queue: bool = True

    def changed(self) -> None:
        """Note that the queue is to be looked at again: something came, went, or gave its place free."""
        self.look_at_queue = True

    def forget(self, job_id: str) -> None:
        """Drop what was kept beside a job that is over."""
        self.watch.forget(job_id)
        self.waiting.forget(job_id)
        kept: tuple[dict[str, Any], ...] = (self.kills, self.why, self.hindrances, self.failures)
        for one in (*kept, self.losses, self.not_before):
            one.pop(job_id, None)
        self.changed()
