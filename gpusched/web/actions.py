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
    if action.do not in _KNOWN:
        raise UsageError(f"there is no action {action.do!r}", f"one of {', '.join(_KNOWN)}")
    if [one.id for one in queue.find_jobs(action.job).jobs] != [action.job]:
        raise NotFound(f"there is no job {action.job} any more", "another one has that name now")
    if action.do == "rerun":
        return f"{action.job} is queued again as {editing.rerun(action.job).job.id}"
    change, done = _ACTIONS[action.do]
    return "; ".join(change(action).report) or f"{action.job} {done.format(value=action.value)}"


def _priority(action: Action) -> queue.Change:
    if action.value is None:
        raise UsageError("no priority is given", "give a whole number")
    return editing.edit(action.job, priority=action.value)


_ACTIONS: Final[Mapping[str, tuple[Callable[[Action], queue.Change], str]]] = {
    "stop": (lambda action: queue.stop(action.job), "is asked to end"),
    "kill": (lambda action: queue.stop(action.job, kill=True), "is ended at once"),
    "hold": (lambda action: queue.hold(action.job), "is held"),
    "release": (lambda action: queue.release(action.job), "is released"),
    "priority": (_priority, "has priority {value}"),
}
_KNOWN: Final = (*_ACTIONS, "rerun")
