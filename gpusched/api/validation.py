"""Values of callers, checked before anything is done with them: a wrong one is a UsageError that names the argument."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from gpusched.errors import UsageError

__all__ = ["SomeJobs", "require_ids", "require_list", "require_one", "require_type"]


class _Identified(Protocol):
    """A job: a Job, or its status."""

    @property
    def id(self) -> str: ...


SomeJobs = str | _Identified | Sequence[str | _Identified]
"""One job or several, each by its id or as a Job."""


def require_type(value: object, kind: Any, name: str) -> None:
    """Raise UsageError if the argument `name` is not of that type, or out of its bounds."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what = str(error).replace("`", "").replace(" - at $", " at ")
        raise UsageError(f"{name}: {value!r}: {what}", "see help() of the function") from None


def require_list(value: object, name: str) -> tuple[Any, ...]:
    """Return the elements of a sequence. Raises UsageError for anything else."""
    if not isinstance(value, Sequence):
        raise UsageError(f"{name}: {value!r} is no list", "see help() of the function")
    return tuple(value)


def require_ids(value: object, name: str) -> tuple[str, ...]:
    """Return the ids of SomeJobs. Raises UsageError for anything else."""
    several = (value,) if isinstance(value, str) or hasattr(value, "id") else require_list(value, name)
    ids = tuple(getattr(one, "id", one) for one in several)
    require_type(ids, tuple[str, ...], name)
    return ids


def require_one(value: object, name: str) -> str:
    """Return the name or id of the one job that is given. Raises UsageError for none, several, or anything else."""
    ids = require_ids(value, name)
    if len(ids) != 1:
        raise UsageError(f"{name}: {len(ids)} jobs are named", "name one")
    return ids[0]
