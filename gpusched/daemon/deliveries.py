"""Has notifications delivered by child processes: one for each destination at a time, and only while something is due.

The daemon starts them and reads what they answer; it never waits for one. What hangs in one hangs there.
"""

import contextlib
import logging
import os
import signal
from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.daemon.delivery_process import SpawnDelivery
from gpusched.errors import HostFault
from gpusched.notifications.destination import Answer, Request
from gpusched.storage.event_table import Batch, EventTable

__all__ = ["Deliveries"]

_LOG: Final = logging.getLogger(__name__)
LIMIT_S: Final = 10.0
"""How long one delivery may take."""

_MARGIN_S: Final = 10.0  # for the start of the process, and for killing what a command has left
_MOST_AT_ONCE: Final = 8
_RETRY_S: Final = 1.0
_LONGEST_ANSWER: Final = 65_536


class _Delivery(msgspec.Struct, kw_only=True):
    """A child process. `left`: the ids that it has not answered yet, in their order; `deadline`: of the first.

    `answered`: that it has answered one. `problem`: why it was killed.
    """

    name: str
    pid: int
    pipe: int
    left: list[str]
    deadline: float
    text: bytes = b""
    answered: bool = False
    problem: str | None = None


class Deliveries:
    """Those that are under way. Times are monotonic seconds."""

    def __init__(self, events: EventTable, spawn: SpawnDelivery) -> None:
        self._events, self._spawn = events, spawn
        self._running: dict[str, _Delivery] = {}
        self._next: float | None = 0.0

    def step(self, now: float) -> bool:
        """Read answers and start what is due; return whether an outcome is to be saved."""
        for one in list(self._running.values()):
            self._read(one, now)
        if self._events.unsaved:  # first it is saved what came of the others
            return True
        if self._events.fresh or (self._next is not None and now >= self._next):
            try:
                self._start_due(now)
            except HostFault as error:
                _LOG.warning("notifications cannot be read: %s", error)
                self._next = now + _RETRY_S
        return self._events.unsaved

    def due(self) -> float | None:
        """Return when to call `step`, None for when a descriptor is readable."""
        deadlines = (one.deadline for one in self._running.values())
        moments = (0.0 if self._events.fresh and not self._events.unsaved else None, self._next, *deadlines)
        return min((moment for moment in moments if moment is not None), default=None)

    def descriptors(self) -> Iterable[int]:
        """Return what becomes readable when a child answers or ends."""
        return [one.pipe for one in self._running.values()]

    def _start_due(self, now: float) -> None:
        for batch in self._events.due(self._running.keys(), _MOST_AT_ONCE - len(self._running)):
            self._start(batch, now)
        room = len(self._running) < _MOST_AT_ONCE
        wait_s = self._events.next_due_in(self._running.keys()) if room else None
        self._next = None if wait_s is None else now + wait_s

    def _start(self, batch: Batch, now: float) -> None:
        request = Request(destination=batch.destination, parcels=batch.parcels, limit_s=LIMIT_S)
        try:
            pid, pipe = self._spawn(request)
        except OSError as error:
            self._note(batch.name, [parcel.id for parcel in batch.parcels], f"no process for it: {error.strerror}")
            return
        ids = [parcel.id for parcel in batch.parcels]
        self._running[batch.name] = _Delivery(
            name=batch.name, pid=pid, pipe=pipe, left=ids, deadline=now + LIMIT_S + _MARGIN_S
        )

    def _read(self, one: _Delivery, now: float) -> None:
        """Take in what a child has answered; after its end the first event without an answer has failed.

        All have if there was no answer at all: the next child would have none either, and one for each of them would
        keep the daemon busy.
        """
        try:
            piece = os.read(one.pipe, _LONGEST_ANSWER)
        except BlockingIOError:
            if now >= one.deadline:
                self._kill(one, now)
            return
        one.text += piece
        *lines, one.text = one.text.split(b"\n")
        for line in lines:
            self._take(one, line)
            one.deadline = now + LIMIT_S + _MARGIN_S
        if piece:
            return
        os.close(one.pipe)
        del self._running[one.name]
        self._next = now
        failed = one.left[:1] if one.answered or one.problem else one.left
        self._note(one.name, failed, one.problem or "the process for it ended")

    def _note(self, name: str, ids: Iterable[str], problem: str) -> None:
        for one in ids:
            self._events.note_outcome(one, name, problem)

    def _take(self, one: _Delivery, line: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            answer = msgspec.json.decode(line, type=Answer)
            one.left.remove(answer.id)
            one.answered = True
            self._events.note_outcome(answer.id, one.name, answer.problem)

    def _kill(self, one: _Delivery, now: float) -> None:
        """Kill a child that does not answer: its pipe is open, so it lives. Its end is read like any other."""
        one.problem, one.deadline = f"it did not end within {LIMIT_S:g} s", now + _MARGIN_S
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.pid, signal.SIGKILL)
