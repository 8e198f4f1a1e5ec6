"""A command's options, described once: a plain command line is read by them at once, any other one by typer.

To import typer takes as long as a whole `gpusched status`. What it is good at has it: help, completion, short options
in one word, telling what is wrong. What it would make of a plain line is what is made of it here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, get_args

__all__ = ["Context", "Option", "read_plainly", "typed"]


_LONGEST_NUMBER: Final = 100
"""Characters. int() refuses more than 4,300, and typer reports that."""


class Option(NamedTuple):
    """What stands behind a parameter's type: `Annotated[int | None, Option("How many.", ("--last",), most=9)]`.

    `names`: none for `--parameter-name`. `metavar`: what stands for its value in the help. `complete` finds the words
    that begin as a person began one. `least` and `most` bound a number. `argument`: it has no name, and takes all
    words that no option does.
    """

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    complete: Callable[[str], list[str]] | None = None
    least: int | None = None
    most: int | None = None
    argument: bool = False


class Context(Protocol):
    """The type of a command's parameter for what is left of its line: words that it does not know."""

    @property
    def args(self) -> list[str]:
        """The words that are left."""


class _NothingLeft:
    args: Final = list[str]()


def read_plainly(command: Callable[..., object], arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return the values that `arguments` give to parameters of `command`; None if they are not plain.

    Plain are whole names of options, each with a value that does not begin with a dash and is in bounds, and arguments.
    """
    described = dict(_described(command))
    if None in described.values():
        return None
    options = {name: option for name, option in described.items() if option is not None}
    named = {name: parameter for parameter, (_, option) in options.items() for name in _names(parameter, option)}
    rest = next((parameter for parameter, (_, option) in options.items() if option.argument), None)
    values: dict[str, Any] = {}
    coming = iter(arguments)
    for word in coming:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter = named.get(name)
        if parameter is None and rest is not None and not word.startswith("-"):
            values.setdefault(rest, []).append(word)
            continue
        if parameter is None:
            return None
        kind, option = options[parameter]
        read = True if kind is bool and not equals else _value(kind, option, value if equals else next(coming, "-"))
        if read is None:
            return None
        values[parameter] = read
    return values | {name: _NothingLeft() for name, kind in command.__annotations__.items() if kind is Context}


def typed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return `command` with its options in typer's words."""
    from functools import wraps
    from inspect import signature

    import typer

    annotations = {name: typer.Context if kind is Context else kind for name, kind in command.__annotations__.items()}
    for name, described in _described(command):
        if described is not None:
            annotations[name] = _as_typers(*described)

    @wraps(command)
    def run(*arguments: object, **values: object) -> object:
        return command(*arguments, **values)

    same = signature(command)
    parameters = [one.replace(annotation=annotations[one.name]) for one in same.parameters.values()]
    run.__annotations__ = annotations
    run.__signature__ = same.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _described(command: Callable[..., object]) -> Iterator[tuple[str, tuple[Any, Option] | None]]:
    """Yield each parameter with its type and its Option, or None for one that is described otherwise."""
    for name, annotation in command.__annotations__.items():
        if name == "return" or annotation is Context:
            continue
        metadata = getattr(annotation, "__metadata__", ())
        yield name, (annotation.__origin__, metadata[0]) if metadata and isinstance(metadata[0], Option) else None


def _names(parameter: str, option: Option) -> Sequence[str]:
    return () if option.argument else option.names or (f"--{parameter.replace('_', '-')}",)


def _value(kind: Any, option: Option, word: str) -> object:
    """Return the value of a word, None if it is not plain."""
    accepted = get_args(kind) or (kind,)
    if word.startswith("-") or bool in accepted:
        return None
    if str in accepted:
        return word
    if not (word.isascii() and word.replace(".", "", float in accepted).isdigit()) or len(word) > _LONGEST_NUMBER:
        return None
    number: int | float = int(word) if int in accepted else float(word)
    low, high = (bound if bound is not None else number for bound in (option.least, option.most))
    return number if low <= number <= high else None


def _as_typers(kind: Any, option: Option) -> object:
    from typing import Annotated

    import typer

    about: Mapping[str, Any] = {"help": option.help, "metavar": option.metavar, "autocompletion": option.complete}
    if option.argument:
        return Annotated[kind, typer.Argument(**about)]
    return Annotated[kind, typer.Option(*option.names, min=option.least, max=option.most, **about)]
