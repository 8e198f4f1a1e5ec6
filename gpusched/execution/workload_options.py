"""A workload's own options: the words behind it on the command line become the settings that it runs with.

They are read before anything is planned, because what a role needs may depend on them (memory.unless).
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, Final, NamedTuple, Never

import msgspec

from gpusched.errors import UsageError, WorkloadError
from gpusched.model.workload import Workload

__all__ = ["Configured", "configured", "configured_as", "configured_by", "configured_to_plan"]

_IMPORTS: Final = Lock()


class Configured(NamedTuple):
    """A workload as it is under its options, and these as JSON."""

    workload: Workload
    options: bytes


def configured(workload: Workload, arguments: Sequence[str], command: str) -> Configured:
    """Return the workload under `arguments`, such as `--network small`, over the defaults of its settings class.

    `command` is what the person typed, as in `gpusched launch snake`, for messages. Raises UsageError for an
    unknown option or a value out of range, WorkloadError for a condition that no settings can meet, and SystemExit(0)
    after `--help`.
    """
    if workload.settings is None:
        if arguments:
            message = f"{_unknown(arguments[0], command, ())}: the workload {workload.name} has none"
            raise UsageError(message, f"see {command} --help")
        return Configured(workload, b"{}")
    of = _settings_class(workload, workload.settings)
    given = _given(workload.name, of, arguments, command) if arguments else {}
    return _chosen(workload, of, given, f"see {command} -- --help")


def configured_by(workload: Workload, options: Mapping[str, object]) -> Configured:
    """Return the workload under `options` by the names of its settings, such as {"network": "small"}.

    Values may be text, as on the command line. Raises UsageError for an unknown option or a value out of range, and
    WorkloadError for a condition that no settings can meet.
    """
    if workload.settings is None:
        if options:
            raise UsageError(f"the workload {workload.name} has no options", f"leave out {', '.join(options)}")
        return Configured(workload, b"{}")
    of = _settings_class(workload, workload.settings)
    for name in options:
        if name not in of.__struct_fields__:
            raise UsageError(
                f"{workload.name} has no option {name!r}", f"its options: {', '.join(of.__struct_fields__)}"
            )
    return _chosen(workload, of, options, f"see gpusched launch {workload.name} -- --help")


def _chosen(workload: Workload, of: type[msgspec.Struct], given: Mapping[str, object], hint: str) -> Configured:
    try:
        chosen = msgspec.convert(given, of, strict=False)
        _check(chosen)
    except ValueError as error:  # msgspec's own errors are ValueErrors too
        what = str(error).replace("`$.", "`--")
        raise UsageError(f"an option of {workload.name}: {what}", hint) from None
    return Configured(_under(workload, of, chosen), msgspec.json.encode(chosen))


def configured_as(workload: Workload, options: str) -> Configured:
    """Return the workload under settings that another host sent as JSON. Raises UsageError for what is unknown here.

    Their `check` does not run: what it reads, such as a file, is where they were typed.
    """
    hint = "install the same workload on both hosts"
    try:
        given = msgspec.json.decode(options, type=dict[str, object])
        of = None if workload.settings is None else _settings_class(workload, workload.settings)
        unknown = [name for name in given if of is None or name not in of.__struct_encode_fields__]
        if unknown:
            message = f"the learner's settings have {unknown[0]!r}, which {workload.name} on this host does not know"
            raise UsageError(message, hint)
        chosen = None if of is None else msgspec.json.decode(options, type=of)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the learner's settings are not understood by {workload.name} here: {error}", hint) from None
    if of is None or chosen is None:
        return Configured(workload, b"{}")
    return Configured(_under(workload, of, chosen), msgspec.json.encode(chosen))


def configured_to_plan(workload: Workload, arguments: Sequence[str], command: str) -> Workload:
    """Return what `configured` does, for a plan only: settings that no role depends on are not read."""
    return configured(workload, arguments, command).workload if arguments or workload.conditional else workload


def _under(workload: Workload, of: type[msgspec.Struct], chosen: msgspec.Struct) -> Workload:
    if not workload.conditional:
        return workload
    _require_possible(workload, of)
    return workload.under({name: msgspec.to_builtins(getattr(chosen, name)) for name in of.__struct_fields__})


def _require_possible(workload: Workload, of: type[msgspec.Struct]) -> None:
    """Raise WorkloadError for a condition that names no setting, or a value that the setting cannot have."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(of)}
    conditions = [("job.listen", workload.listen_unless)]
    conditions += [(f"roles.{role.name}.memory", role.memory.unless) for role in workload.roles if role.memory]
    for key, name, value in ((key, *condition) for key, unless in conditions for condition in unless):
        where = f"{workload.path}: {key}.unless.{name}"
        if name not in kinds:
            raise WorkloadError(f"{where} is no setting of {workload.settings}", f"known there: {', '.join(kinds)}")
        try:
            msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            raise WorkloadError(f"{where} is {value!r}: {error}", "give a value that the setting can have") from None


def _given(name: str, of: type[msgspec.Struct], arguments: Sequence[str], command: str) -> Mapping[str, Any]:
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
        hint = f"see {command} --help, and for the options of {name} {command} -- --help"
        raise UsageError(_unknown(unknown[0], command, of.__struct_fields__), hint)
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


def _parameters(command: str) -> Iterator[str]:
    """Yield the parameters of a command, such as `gpusched launch snake`, that are options: no arguments."""
    name = command.split()[1]
    for parameter, annotation in getattr(import_module(f"gpusched.cli.{name}"), name).__annotations__.items():
        described = getattr(annotation, "__metadata__", ())
        if described and type(described[0]).__name__ != "ArgumentInfo":
            yield parameter


def _kind_and_text(annotation: Any) -> tuple[msgspec.inspect.Type, str]:
    kind = msgspec.inspect.type_info(annotation)
    if isinstance(kind, msgspec.inspect.Metadata):
        return kind.type, str((kind.extra_json_schema or {}).get("description", ""))
    return kind, ""


def _check(chosen: msgspec.Struct) -> None:
    """Let the settings check what their types cannot: a `check` method that raises ValueError."""
    check = getattr(chosen, "check", None)
    if check is not None:
        check()


def _imported_from_here(name: str) -> ModuleType:
    """Import a module as `python -m` would here, as it does for the replicas.

    Afterwards the working directory is the last of sys.path, so that nothing in it takes the place of another module.
    """
    here = str(Path.cwd())
    with _IMPORTS:
        sys.path.insert(0, here)
        try:
            return import_module(name)
        finally:
            sys.path.remove(here)
            if here not in sys.path:
                sys.path.append(here)


def _settings_class(workload: Workload, name: str) -> type[msgspec.Struct]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(_imported_from_here(module), attribute)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the module is the workload's own, and may break in any way)
        where = f"{workload.path}: job.settings"
        raise WorkloadError(f"{where}: {name!r}: {error}", 'name a class, such as "my.settings:Settings"') from None
    if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
        raise WorkloadError(
            f"{workload.path}: job.settings: {name!r} is no msgspec.Struct", "derive it from msgspec.Struct"
        )
    return found
