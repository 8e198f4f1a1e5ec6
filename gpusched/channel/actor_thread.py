"""The actor's thread: it sends batches while the application plays, fetches weights, and outlives the learner.

It owns the threads and the condition; actor_protocol.py has the messages. The application's side (actor.py) shares the
condition, which goes with the socket, and takes a turn at it in its own thread when it sends, and while it waits.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpusched import runtime
from gpusched.channel.actor_protocol import HELLO_AGAIN_S, ActorProtocol, Outgoing, Question
from gpusched.channel.messages import Leaving
from gpusched.channel.shm.segment import ReusableSegment
from gpusched.channel.transport import ClientSocket, Transport, thread_ended
from gpusched.channel.values import Limits, Speaker
from gpusched.errors import LearnerGone

__all__ = ["ActorThread"]

_STANDS_BACK_S: Final = 1.0


class ActorThread(ActorProtocol):
    """What run() does in its thread. The public attributes are shared: read and change them with `changed` held."""

    def __init__(self, socket: ClientSocket, speaker: Speaker, limits: Limits) -> None:
        self._link = Transport()
        self._link.add(socket)
        super().__init__(socket, self._link.wake, speaker, limits)
        self.changed = threading.Condition()
        self._stand_in: int | None = None
        self._waiting = 0

    # What the application's thread may call, with `changed` held

    def room(self, size: int) -> ReusableSegment | None:
        """Return a segment for a batch of `size` bytes, None if it is to go as frames."""
        return self.lent.take(size) if self._shares else None

    def post(self, outgoing: Outgoing, question: Question | None) -> None:
        """Send this batch, now if there is room. The learner's answer to it belongs to `question`."""
        self._number_it(outgoing)
        if question is not None:
            self.questions[outgoing.seq] = question
        due = self.outbox or self._leaving or self.fetching.owes
        direct = self._welcomed and not (due or self._socket.reports_once)
        if not (direct and self._send_batch(outgoing)):
            self.outbox.append(outgoing)
            self._guarded_turn()

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """Meanwhile fetch newer weights as soon as there are any: the application waits for them."""
        self.fetching.waited_for += 1
        try:
            self._guarded_turn()
            yield
        finally:
            self.fetching.waited_for -= 1

    def took_weights(self) -> None:
        """Note that the application has taken those that are here."""
        self.fetching.taken(time.monotonic())
        if self.fetching.due() < math.inf:
            self.wake.set()  # the thread may wait for other things, and longer

    def wait(self, over: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for messages until `over`, in the thread's place; False when `timeout` seconds passed before.

        It is not over yet.
        """
        if self._stand_in is not None:  # of several threads in calls one does
            return self._wait_for(over, timeout)
        if timeout is not None and timeout <= 0:
            self._guarded_turn()
            return over()
        end = None if timeout is None else time.monotonic() + timeout
        try:
            self._stand_in = threading.get_ident()
            self._link.stand_in()
            while True:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.changed.release()
                try:
                    self._link.follow(left)
                finally:
                    self.changed.acquire()
                self._guarded_turn()
                if over():
                    return True
        finally:
            self._link.stand_back()
            self._stand_in = None
            if self._waiting:
                self.changed.notify_all()

    def notify(self) -> None:
        """Let all threads that wait check again."""
        if self._waiting:
            self.changed.notify_all()
        if self._stand_in not in {None, threading.get_ident()}:
            self._link.nudge.set()

    def close_link(self) -> None:
        """Give the socket back, after the thread has ended and the thread that waits has gone."""
        self.notify()
        self._wait_for(lambda: self._stand_in is None, _STANDS_BACK_S)
        self._link.close()

    def _wait_for(self, over: Callable[[], bool], timeout: float | None) -> bool:
        self._waiting += 1
        try:
            return self.changed.wait_for(over, timeout)
        finally:
            self._waiting -= 1

    # The thread

    def run(self) -> None:
        """Serve until the application closes, or the learner ends the job; the reason shows in `gone`."""
        try:
            while not self._finished():
                self._link.poll(self._until_due())
                with self.changed:
                    self._turn()
            with self.changed:
                if self._welcomed and not self._leaving:
                    self._send(Leaving())
        except Exception as error:  # noqa: BLE001 (whatever it is, the application must get it)
            with self.changed:
                self._end(thread_ended(error))
        finally:
            with self.changed:
                self.lent.close()
            if isinstance(self.gone, LearnerGone):
                runtime.report_learner_gone(lost=not self.over)
            elif self.refused:
                runtime.report_learner_gone(lost=True, refuses=True)

    def _guarded_turn(self) -> None:
        try:
            self._turn()
            if self._blocked:
                self.wake.set()  # the thread is to connect again, and may wait for other things
        except Exception as error:  # noqa: BLE001 (as in run)
            self._end(thread_ended(error))

    def _finished(self) -> bool:
        with self.changed:
            if self.gone is not None:
                return True
            if self.closing_at is None:
                return False
            # The learner has to read, or to map, what was sent, before this process ends and its memory with it.
            rest = self.outbox or (self.in_flight and not self._parted)
            return not rest or time.monotonic() >= self.closing_at

    def _until_due(self) -> float:
        now = time.monotonic()
        due = min(self._ping_at, self.fetching.due()) if self._welcomed else self._hello_at + HELLO_AGAIN_S
        if self._leaving:
            due = math.inf
        elif self._blocked:  # room ends the wait, or it is time to connect again
            due = now + self._socket.again_in()
        if self.closing_at is not None:
            due = min(due, self.closing_at)
        return min(self._heartbeat_s, max(0.0, due - now))
