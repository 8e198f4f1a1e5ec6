"""A command's options, described once: a plain command line is read by them at once, any other one by typer.

To import typer takes as long as a whole `gpusched status`. What it is good at has it: help, completion, short options
in one word, telling what is wrong. What it would make of a plain line is what is made of it here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar, get_args, get_origin

__all__ = [
    "Context",
    "Option",
    "Options",
    "argument",
    "flag",
    "options_before_program",
    "read_plainly",
    "switch",
    "typed",
    "with_options",
]

Command = TypeVar("Command", bound=Callable[..., object])
Completion = Callable[[str], list[str]]

_LONGEST_NUMBER: Final = 100
"""Characters. int() refuses more than 4,300, and typer reports that."""


class Option(NamedTuple):
    """What stands behind a parameter's type: `Annotated[int | None, Option("How many.", ("--last",), most=9)]`.

    `names`: none for `--parameter-name`. `metavar`: what stands for its value in the help. `complete` finds the
    words that begin as a person began one. `least` and `most` bound a number. `argument`: it has no name, and takes
    all words that no option does; one word where its type is text. `is_command`: with the first of them the options
    end, as what follows are those of a program. `kind` and `default` (... for none) are those of
    an option in a table; see `with_options`.
    """

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    complete: Completion | None = None
    least: int | None = None
    most: int | None = None
    argument: bool = False
    is_command: bool = False
    kind: Any = str | None
    default: object = None


Options = Mapping[str, Option]
"""A table of options by the names of their parameters, in the order of the help."""


def flag(text: str, *names: str) -> Option:
    """Return an option without a value."""
    return Option(text, names, kind=bool, default=False)


def switch(text: str, names: str) -> Option:
    """Return an option with two names, "--yes/--no", which mean True and False; it is None if neither is typed."""
    return Option(text, (names,), kind=bool | None)


def argument(
    text: str,
    metavar: str | None = None,
    complete: Completion | None = None,
    kind: Any = str,
    *,
    is_command: bool = False,
) -> Option:
    """Return an argument that must be given."""
    return Option(
        text, metavar=metavar, complete=complete, argument=True, is_command=is_command, kind=kind, default=...
    )


def with_options(options: Options) -> Callable[[Command], Command]:
    """Return a decorator that gives a command these options, behind those of its signature.

    It gets all of them by keyword. Those that it has no parameter for it passes on, by a `**given`.
    """

    def decorate(command: Command) -> Command:
        described = {name: Annotated[option.kind, option] for name, option in options.items()}
        own = {name: kind for name, kind in command.__annotations__.items() if name not in {*options, "given"}}
        command.__annotations__ = own | described
        command.defaults = {name: option.default for name, option in options.items()}  # type: ignore[attr-defined]
        return command

    return decorate


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
    named = {
        name: parameter
        for parameter, (_, option) in options.items()
        for names in _names(parameter, option)
        for name in names.split("/")
    }
    rest = next((parameter for parameter, (_, option) in options.items() if option.argument), None)
    values = _defaults(command)
    coming = iter(arguments)
    for word in coming:
        if rest is not None and _begins_command(options[rest][1], word):
            values[rest] = [*(() if word == "--" else (word,)), *coming] or ...
            break
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter = named.get(name)
        if parameter is None and rest is not None and not word.startswith("-"):
            if not _take_word(values, rest, word, several=_is_list(options[rest][0])):
                return None
            continue
        if parameter is None:
            return None
        kind, option = options[parameter]
        read: object
        if bool in (get_args(kind) or (kind,)) and not equals:
            read = not any(names.endswith(f"/{name}") for names in option.names)
        else:
            read = _value(kind, option, value if equals else next(coming, "-"))
        if read is None:
            return None
        values[parameter] = read
    if ... in values.values():
        return None
    return values | {name: _NothingLeft() for name, kind in command.__annotations__.items() if kind is Context}


def options_before_program(command: Callable[..., object], arguments: Sequence[str]) -> Iterator[str]:
    """Yield the options that stand before the words of a program, with their values, also of a line that is wrong.

    The word behind an option that there is not is taken for its value.
    """
    is_flag = {
        name: bool in (get_args(described[0]) or (described[0],))
        for parameter, described in _described(command)
        if described is not None
        for names in _names(parameter, described[1])
        for name in names.split("/")
    }
    has_value = False
    for word in arguments:
        if not (word.startswith("-") or has_value):
            return
        yield word
        is_value = has_value and word not in is_flag
        has_value = not (is_value or "=" in word or is_flag.get(word, False))


def _take_word(values: dict[str, Any], name: str, word: str, *, several: bool) -> bool:
    """Give a word to the argument of that name; return whether it had room for it."""
    before = values.get(name)
    if several:
        values[name] = [*(before if isinstance(before, list) else ()), word]
        return True
    values[name] = word
    return before in (None, ...)


def _begins_command(option: Option, word: str) -> bool:
    return option.is_command and (word == "--" or not word.startswith("-"))


def typed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return `command` with its options in typer's words."""
    from functools import wraps
    from inspect import Parameter, Signature, signature

    import typer

    annotations = {name: typer.Context if kind is Context else kind for name, kind in command.__annotations__.items()}
    for name, described in _described(command):
        if described is not None:
            annotations[name] = _as_typers(name, *described)

    @wraps(command)
    def run(*arguments: object, **values: object) -> object:
        return command(*arguments, **values)

    defaults = {one.name: one.default for one in signature(command).parameters.values()} | _defaults(command)
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
        for name, kind in annotations.items()
        if name != "return"
    ]
    run.__annotations__ = annotations
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _defaults(command: Callable[..., object]) -> dict[str, Any]:
    """Return the values of the options of a table, where none is given."""
    return dict(getattr(command, "defaults", {}))


def _described(command: Callable[..., object]) -> Iterator[tuple[str, tuple[Any, Option] | None]]:
    """Yield each parameter with its type and its Option, or None for one that is described otherwise."""
    for name, annotation in command.__annotations__.items():
        if name == "return" or annotation is Context:
            continue
        metadata = getattr(annotation, "__metadata__", ())
        yield name, (annotation.__origin__, metadata[0]) if metadata and isinstance(metadata[0], Option) else None


def _is_list(kind: Any) -> bool:
    return any(get_origin(one) is list for one in (kind, *get_args(kind)))


def _names(parameter: str, option: Option) -> Sequence[str]:
    return () if option.argument else option.names or (f"--{parameter.replace('_', '-')}",)


def _value(kind: Any, option: Option, word: str) -> object:
    """Return the value of a word, None if it is not plain."""
    accepted = get_args(kind) or (kind,)
    if word.startswith("-"):
        return None
    if str in accepted:
        return word
    if (
        not {int, float} & set(accepted)
        or not (word.isascii() and word.replace(".", "", float in accepted).isdigit())
        or len(word) > _LONGEST_NUMBER
    ):
        return None
    number: int | float = int(word) if int in accepted else float(word)
    low, high = (bound if bound is not None else number for bound in (option.least, option.most))
    return number if low <= number <= high else None


def _as_typers(parameter: str, kind: Any, option: Option) -> object:
    import typer

    about: Mapping[str, Any] = {"help": option.help, "metavar": option.metavar, "autocompletion": option.complete}
    if option.argument:
        return Annotated[kind, typer.Argument(**about)]
    return Annotated[kind, typer.Option(*_names(parameter, option), min=option.least, max=option.most, **about)]
