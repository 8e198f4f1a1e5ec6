"""Questions that are answered later: when a turn has come, when jobs have ended, or when patience is over."""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from gpusched.control.messages import Answer
from gpusched.daemon.server import Asked, refusal
from gpusched.errors import GpuschedError

__all__ = ["PendingReplies"]

_LOG: Final = logging.getLogger(__name__)
_MOST: Final = 10_000
_INTEREST_S: Final = 5.0


class PendingReplies:
    """Peers that wait for an answer; over 10,000 of them, the one that waits longest gets the present state."""

    def __init__(self) -> None:
        self._peers: dict[tuple[bytes, bytes], tuple[Asked, float, Callable[[bool], Answer | None]]] = {}
        self._interest: dict[str, float] = {}

    def add(self, asked: Asked, until: float, try_answer: Callable[[bool], Answer | None]) -> None:
        """Keep a question. `try_answer` returns its answer or, if it is to wait further, None; never None for True.

        An error that it raises is the answer.
        """
        self._peers[(asked.peer, asked.number)] = (asked, until, try_answer)

    def ready(self, now: float) -> Iterator[tuple[Asked, Answer]]:
        """Yield what can be answered now, or must."""
        over = len(self._peers) - _MOST
        for key, (asked, until, try_answer) in list(self._peers.items()):
            try:
                answer = try_answer(now >= until or over > 0)
            except GpuschedError as error:
                answer = refusal(error)
            except Exception as error:  # noqa: BLE001 (the other peers get their answers all the same)
                _LOG.exception("a question cannot be answered")
                answer = refusal(GpuschedError(f"internal error: {type(error).__name__}: {error}", "see daemon.log"))
            over -= 1
            if answer is not None:
                del self._peers[key]
                yield asked, answer

    def due(self) -> float | None:
        """Return when the first patience is over (monotonic seconds), None if no peer waits."""
        return min((until for _, until, _ in self._peers.values()), default=None)

    def interested(self, job_id: str, until: float) -> None:
        """Note that a launcher asks for the turn of a job, and will ask again soon after `until`."""
        self._interest[job_id] = until + _INTEREST_S

    def forget(self, job_id: str) -> None:
        """Drop the interest in the turn of this job."""
        self._interest.pop(job_id, None)

    def is_interested(self, job_id: str, now: float) -> bool:
        """Return whether a launcher has asked for the turn of the job just now, and so can start it when it comes."""
        if self._interest.get(job_id, now) > now:
            return True
        self._interest.pop(job_id, None)
        return False
