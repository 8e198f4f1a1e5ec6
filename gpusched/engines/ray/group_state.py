"""The state of a group on Ray, which the threads of its nodes and the one that polls it share. It knows no Ray."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from gpusched.engines.base import Seen
from gpusched.model.status import JobState

__all__ = ["RayGroupState"]

Send = Callable[[bytes], None]
"""Sends a line to one node, STOP or KILL: to end its part in order, or at once."""

STOP: Final = b"stop\n"
KILL: Final = b"kill\n"


class RayGroupState:
    """Where the learner is, which nodes are notified when that changes, and how the group ended.

    All its methods may be called from any thread, and none of them waits for the cluster.
    """

    def __init__(self, needed: Collection[frozenset[int]] = ()) -> None:
        """`needed`: sets of nodes; where all nodes of a set have given up, the learner would wait for ever."""
        self._needed, self._without = tuple(needed), set[int]()
        self._changed = threading.Condition()
        self._learner: str | None = None
        self.learners = 0
        self._ended: Seen | None = None
        self._ended_at = 0.0
        self._parts: dict[int, Send] = {}
        self._has_run = False

    @property
    def has_run(self) -> bool:
        """Whether any node ever had its part."""
        return self._has_run

    @property
    def ended(self) -> Seen | None:
        """How the group ended, None as long as it goes on."""
        return self._ended

    @property
    def runs(self) -> bool:
        """Whether any node has its part just now."""
        return bool(self._parts)

    def end(self, how: Seen) -> None:
        """Have all parts end in order, unless they do so already: the first end is the group's."""
        with self._changed:
            if self._ended is not None:
                return
            self._ended, self._ended_at = how, time.monotonic()
            self._changed.notify_all()
            for send in self._parts.values():
                send(STOP)

    def hurry(self) -> None:
        """Have all parts end at once."""
        with self._changed:
            for send in self._parts.values():
                send(KILL)

    def ends_for_s(self) -> float:
        """Return for how many seconds the parts have been asked to end."""
        return 0.0 if self._ended is None else time.monotonic() - self._ended_at

    def begin_learner(self, endpoint: str) -> None:
        """Restart the parts of all other nodes, with a learner that listens at `endpoint`."""
        with self._changed:
            self._learner = endpoint
            self.learners += 1
            self._without.clear()
            self._changed.notify_all()
            for number, send in self._parts.items():
                if number:
                    send(STOP)

    def give_up(self, number: int, known: int, message: str) -> None:
        """Note that the replicas of a node have used up their restarts, with the learner number `known`.

        The group fails where no node is left that the learner needs.
        """
        with self._changed:
            if known < self.learners:
                return
            self._without.add(number)
            if any(nodes <= self._without for nodes in self._needed):
                self.end(Seen(state=JobState.FAILED, message=f"no actor is left for the learner: {message}"))

    def other_learner(self, known: int) -> bool:
        """Wait until there is a later learner than number `known` (of `learners`); False if the group ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended is not None or self.learners > known)
            return self._ended is None

    def lose_learner(self) -> None:
        """Let no part begin until there is another learner."""
        with self._changed:
            self._learner = None

    def learner(self) -> str | None:
        """Wait until there is a learner; return its endpoint, None if the group ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended is not None or self._learner is not None)
            return None if self._ended is not None else self._learner

    @contextmanager
    def part(self, number: int, learner: str, send: Send) -> Iterator[None]:
        """Have `send` called, once the part of the node `number` is to end; at once if that was so before it began."""
        with self._changed:
            self._parts[number], self._has_run = send, True
            if self._ended is not None or learner != self._learner:
                send(STOP)
        try:
            yield
        finally:
            with self._changed:
                del self._parts[number]

    def pause(self, seconds: float) -> None:
        """Return after `seconds`, or when the group ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended is not None, timeout=seconds)
