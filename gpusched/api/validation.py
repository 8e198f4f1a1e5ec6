"""Values of callers, checked before anything is done with them: a wrong one is a UsageError that names the argument."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gpusched.errors import UsageError

__all__ = ["require_list", "require_names", "require_type"]


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


def require_names(value: object, name: str) -> tuple[str, ...]:
    """Return one name, or several, as a tuple. Raises UsageError for anything else."""
    names = (value,) if isinstance(value, str) else require_list(value, name)
    require_type(names, tuple[str, ...], name)
    return names
