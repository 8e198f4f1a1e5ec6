"""Where replicas may go, as arguments; what all tables of arguments share. It imports little: `plan` is to be quick."""

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, TypedDict, TypeVar, get_type_hints

from gpusched.api.validation import require_type
from gpusched.execution.plan_options import PlanOptions

__all__ = [
    "Function",
    "PlanArguments",
    "amount",
    "as_text",
    "chosen_of",
    "plan_options",
    "require_known",
    "with_signature",
]

Function = TypeVar("Function", bound=Callable[..., Any])


class PlanArguments(TypedDict, total=False):
    """Where replicas may go, and how many there are."""

    procs: int | str | None
    """How many actors, or "max"; the learner comes on top."""
    machine: str | None
    """A machine that is not here, such as "p3.8xlarge"; "here" is this host."""
    gpus: str | None
    """Only these devices: indices ("0,2"), MIG instances ("0:2") or starts of uuids."""
    exclude_gpus: str | None
    """All devices but these."""
    ignore_foreign: int | str | None
    """Processes of no job to plan over: pids, users, or those that hold less, "<1GiB", with commas."""
    learner_memory: int | str | None
    """The least memory of the learner; "auto": what earlier runs needed."""
    actor_memory: int | str | None
    """The least memory of an actor; "auto": what earlier runs needed."""
    policy: str | None
    """"balanced", "pack", "spread" or "exclusive"; by default "balanced" where it grows, else "pack"."""
    grow: bool | None
    """Whether replicas get what is left over, else the least that they need; by default where it begins at once."""


def plan_options(given: Mapping[str, Any]) -> PlanOptions:
    """Return what is given of PlanArguments as it is typed on the command line."""
    texts = chosen_of(given, PlanArguments)
    grow = texts.pop("grow", None)
    require_type(grow, bool | None, "grow")
    for name in ("learner_memory", "actor_memory"):
        if name in texts:
            texts[name] = amount(texts[name])
    return PlanOptions(grow=grow)._replace(**as_text(texts))


def require_known(given: Mapping[str, Any], table: type) -> None:
    """Raise TypeError for a name that `table` does not have."""
    known = get_type_hints(table)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; known: {', '.join(sorted(known))}")


def with_signature(table: type, defaults: Mapping[str, Any]) -> Callable[[Function], Function]:
    """Return a decorator that gives a function of **keywords the signature of `table`, with `defaults`.

    It is what help() and completion show.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
            for name, kind in get_type_hints(table).items()
        ]
        before = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*before, *keywords])  # type: ignore[attr-defined]
        return function

    return decorate


def chosen_of(given: Mapping[str, Any], table: type) -> dict[str, Any]:
    """Return what is given of `table` and is not None, in its order."""
    return {name: given[name] for name in get_type_hints(table) if given.get(name) is not None}


def as_text(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as they are typed on the command line."""
    return {name: str(value) for name, value in values.items()}


def amount(value: Any) -> Any:
    """Return an amount of memory as text; a whole number is MiB."""
    return f"{value}MiB" if isinstance(value, Integral) else value
