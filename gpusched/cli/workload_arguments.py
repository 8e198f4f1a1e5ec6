"""A workload's own options on the command line: the arguments behind its name become its settings."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Never

import msgspec

from gpusched.errors import UsageError

__all__ = ["own_options"]


def own_options(workload: str, arguments: Sequence[str], command: str) -> dict[str, Any]:
    """Return the options of a workload in `arguments`, such as `--network small`: their values as text, by name.

    `command` is what the person typed, with {} for the workload's name, as in `gpusched launch {}`, for messages.
    Raises UsageError for an unknown option or a value out of range, WorkloadError, and SystemExit(0) after `--help`.
    """
    if not arguments:
        return {}
    from gpusched.api.workloads import chosen_under, named_workload, settings_class

    named = named_workload(workload)
    command, of = command.format(named.name), settings_class(named)
    if of is None:
        message = f"{_unknown(arguments[0], command, ())}: the workload {named.name} has none"
        raise UsageError(message, f"see {command} --help")
    given = _given(named.name, of, arguments, command)
    chosen_under(named, of, given, f"see {command} -- --help")
    return given


def _given(name: str, of: type[msgspec.Struct], arguments: Sequence[str], command: str) -> dict[str, Any]:
    """Return the values in `arguments` for the workload of that name, as text, by the name of the setting."""
    import argparse  # as long as all of a plan without options takes beside it

    class Parser(argparse.ArgumentParser):
        """A parser whose complaints are errors of ours."""

        def error(self, message: str) -> Never:
            raise UsageError(message, f"see {command} -- --help")

    parser = Parser(prog=command, description=of.__doc__, allow_abbrev=False)
    for field in msgspec.structs.fields(of):
        kind, text = _kind_and_text(field.type)
        choices = kind.values if isinstance(kind, msgspec.inspect.LiteralType) else None
        described = f"{text} (default: {field.default if field.default != '' else 'none'})"
        option = "--" + field.name.replace("_", "-")
        action: Any = {"action": argparse.BooleanOptionalAction} if isinstance(kind, msgspec.inspect.BoolType) else {}
        if not action:
            action = {"choices": choices, "metavar": None if choices else field.name.upper().rpartition("_")[2]}
        parser.add_argument(option, dest=field.name, default=None, help=described.replace("%", "%%"), **action)
    given, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        raise UsageError(_unknown(unknown[0], command, of.__struct_fields__), _hint(unknown[0], command, name))
    return {setting: value for setting, value in vars(given).items() if value is not None}


def _unknown(word: str, command: str, settings: Sequence[str]) -> str:
    """Return that `word` is no option, and which options of the command or of the workload are near it."""
    if not word.startswith("-"):
        return f"{word!r} belongs to no option"
    from difflib import get_close_matches

    options = [f"--{each.removeprefix('as_').replace('_', '-')}" for each in (*_parameters(command), *settings)]
    near = get_close_matches(word.partition("=")[0], dict.fromkeys(options), cutoff=0.8)
    possible = f" (Possible options: {', '.join(near)})" if near else ""
    return f"No such option: {word.partition('=')[0]}{possible}"


def _hint(word: str, command: str, name: str) -> str:
    from gpusched.api.catalog import workload_names

    if "workload" in _parameters(command) and word in workload_names():
        return f"the workload is an option: gpusched plan --workload {word}"
    return f"see {command} --help, and for the options of {name} {command} -- --help"


def _parameters(command: str) -> Iterator[str]:
    """Yield the parameters of a command, such as `gpusched launch snake`, that are options: no arguments."""
    name = command.split()[1]
    for parameter, annotation in getattr(import_module(f"gpusched.cli.{name}"), name).__annotations__.items():
        described = getattr(annotation, "__metadata__", ())
        if described and not described[0].argument:
            yield parameter


def _kind_and_text(annotation: Any) -> tuple[msgspec.inspect.Type, str]:
    kind = msgspec.inspect.type_info(annotation)
    if isinstance(kind, msgspec.inspect.Metadata):
        return kind.type, str((kind.extra_json_schema or {}).get("description", ""))
    return kind, ""
