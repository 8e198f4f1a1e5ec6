"""A channel on which given batches come; after them the run is asked to stop."""

from collections.abc import Mapping
from typing import Any, cast

from gpusched.channel import Batch, Learner
from workloads.common.rounds import InRounds, hold_rounds
from workloads.common.run import Run


class Sent:
    """What comes, and what was published."""

    def __init__(self, run: Run[Any], *batches: Batch) -> None:
        self._run, self._batches = run, list(batches)
        self.published: list[Mapping[str, Any]] = []

    def get(self, _timeout: float) -> Batch | None:
        if self._batches:
            return self._batches.pop(0)
        self._run.ask_to_stop()
        return None

    def publish(self, arrays: Mapping[str, Any]) -> None:
        self.published.append(arrays)


def after(run: Run[Any], *batches: Batch) -> list[Mapping[str, Any]]:
    """Return what a run in rounds has published once these batches have come."""
    sent = Sent(run, *batches)
    hold_rounds(cast(InRounds, run), cast(Learner, sent))
    run.stop_asked = False
    return sent.published
