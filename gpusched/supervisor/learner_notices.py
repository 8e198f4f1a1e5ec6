"""What actors leave in their job's directory when their learner, on another host, is gone."""

import os
from collections.abc import Mapping
from typing import Final

from gpusched.execution.directory import JobDirectory
from gpusched.execution.spec import JobSpec
from gpusched.model.status import REPLICA_TERMINAL
from gpusched.runtime import LEARNER_LOST, LEARNER_OVER, LEARNER_REFUSES, ready_name
from gpusched.supervisor.events import LearnerOver
from gpusched.supervisor.replica_run import ReplicaRun

__all__ = ["LearnerNotices"]

_NOTICES: Final = (LEARNER_LOST, LEARNER_OVER, LEARNER_REFUSES)


class LearnerNotices:
    """The notices of one attempt of a job; those of an earlier one are removed."""

    def __init__(self, directory: JobDirectory, spec: JobSpec) -> None:
        self._ready, self._first_attempt = directory.ready, spec.attempt
        self._paths = [directory.path / name for name in _NOTICES]
        for path in self._paths:
            path.unlink(missing_ok=True)

    def read(self, runs: Mapping[str, ReplicaRun], now: float) -> LearnerOver | None:
        """Return that the learner is gone, if an actor left a notice of it: to be applied before the actor's own end.

        An actor that had reached the learner learns of the end as well, and ends by itself.
        """
        lost, over, refuses = map(os.path.lexists, self._paths)
        if not (lost or over or refuses):
            return None
        unheard = not any(map(self._has_reached, runs.values()))
        return LearnerOver(now=now, unheard=unheard, lost=not over, refuses=refuses and not over)

    def _has_reached(self, run: ReplicaRun) -> bool:
        notice = self._ready / ready_name(run.name, self._first_attempt + run.restarts)
        return run.state not in REPLICA_TERMINAL and run.pid is not None and os.path.lexists(notice)
