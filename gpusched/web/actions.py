"""What a person does to a job from the page: each action by its name, through the API."""

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec

from gpusched.api import editing, queue
from gpusched.errors import NotFound, UsageError

__all__ = ["Action", "JobId", "act"]


JobId = Annotated[str, msgspec.Meta(pattern=r"^[^*?\[\],\s]+(\[[0-9]+\])?$", max_length=200)]
"""An id, and no glob: one click is for one job."""


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked: `do` is one of the actions, `job` the id of a job, and `value` the priority that it gets."""

    do: str
    job: JobId
    value: int | None = None


def act(action: Action) -> str:
    """Do it, and return a sentence on what was done. Raises UsageError, and what the functions of the API raise."""
    if action.do not in _ACTIONS:
        raise UsageError(f"there is no action {action.do!r}", f"one of {', '.join(_ACTIONS)}")
    if [one.id for one in queue.find_jobs(action.job).jobs] != [action.job]:
        raise NotFound(f"there is no job {action.job} any more", "another one has that name now")
    return _ACTIONS[action.do](action)


def _stop(action: Action) -> str:
    return _lines(queue.stop(action.job), f"{action.job} is asked to end")


def _kill(action: Action) -> str:
    return _lines(queue.stop(action.job, kill=True), f"{action.job} is ended at once")


def _hold(action: Action) -> str:
    return _lines(queue.hold(action.job), f"{action.job} is held")


def _release(action: Action) -> str:
    return _lines(queue.release(action.job), f"{action.job} is released")


def _rerun(action: Action) -> str:
    return f"{action.job} is queued again as {editing.rerun(action.job).job.id}"


def _priority(action: Action) -> str:
    if action.value is None:
        raise UsageError("no priority is given", "give a whole number")
    return _lines(editing.edit(action.job, priority=action.value), f"{action.job} has priority {action.value}")


def _lines(change: queue.Change, otherwise: str) -> str:
    return "; ".join(change.report) or otherwise


_ACTIONS: Final[Mapping[str, Callable[[Action], str]]] = {
    "stop": _stop,
    "kill": _kill,
    "hold": _hold,
    "release": _release,
    "rerun": _rerun,
    "priority": _priority,
}
