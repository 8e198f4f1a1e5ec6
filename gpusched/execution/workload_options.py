"""A workload's own options: the settings that it runs with.

They are read before anything is planned, because what a role needs may depend on them (memory.unless).
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Final, NamedTuple

import msgspec

from gpusched.errors import UsageError, WorkloadError
from gpusched.model.workload import Workload

__all__ = ["Configured", "chosen_under", "configured_as", "configured_by", "settings_class"]

_IMPORTS: Final = Lock()


class Configured(NamedTuple):
    """A workload as it is under its options, and these as JSON."""

    workload: Workload
    options: bytes


def configured_by(workload: Workload, options: Mapping[str, object]) -> Configured:
    """Return the workload under `options` by the names of its settings, such as {"network": "small"}.

    Values may be text, as on the command line. Raises UsageError for an unknown option or a value out of range, and
    WorkloadError for a condition that no settings can meet.
    """
    of = settings_class(workload)
    _require_known(workload, of)
    if of is None:
        if options:
            raise UsageError(f"the workload {workload.name} has no options", f"leave out {', '.join(options)}")
        return Configured(workload, b"{}")
    for name in options:
        if name not in of.__struct_fields__:
            raise UsageError(
                f"{workload.name} has no option {name!r}", f"its options: {', '.join(of.__struct_fields__)}"
            )
    return chosen_under(workload, of, options, f"see gpusched launch {workload.name} -- --help")


def chosen_under(workload: Workload, of: type[msgspec.Struct], given: Mapping[str, object], hint: str) -> Configured:
    """Return the workload under the values `given` to its settings class `of`. Raises UsageError, with `hint`."""
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
        of = settings_class(workload)
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


def _under(workload: Workload, of: type[msgspec.Struct], chosen: msgspec.Struct) -> Workload:
    if not workload.conditional:
        return workload
    _require_possible(workload, of)
    return workload.under({name: msgspec.to_builtins(getattr(chosen, name)) for name in of.__struct_fields__})


def _require_possible(workload: Workload, of: type[msgspec.Struct]) -> None:
    """Raise WorkloadError for a condition that names no setting, or a value that the setting cannot have."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(of)}
    conditions = [("job.listen.unless", workload.listen_unless)]
    conditions += [(f"roles.{role.name}.when", role.when) for role in workload.roles]
    conditions += [(f"roles.{role.name}.memory.unless", role.memory.unless) for role in workload.roles if role.memory]
    for key, name, value in ((key, *condition) for key, all_of_it in conditions for condition in all_of_it):
        where = f"{workload.path}: {key}.{name}"
        if name not in kinds:
            raise WorkloadError(f"{where} is no setting of {workload.settings}", f"known there: {', '.join(kinds)}")
        try:
            msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            raise WorkloadError(f"{where} is {value!r}: {error}", "give a value that the setting can have") from None


def _require_known(workload: Workload, of: type[msgspec.Struct] | None) -> None:
    """Raise WorkloadError where the memory is to depend on a setting that there is not."""
    known = () if of is None else of.__struct_fields__
    for name in workload.memory_options:
        if name not in known:
            where = f"{workload.path}: job.memory_options"
            raise WorkloadError(f"{where}: {name!r} is no setting of {workload.settings}", f"known: {', '.join(known)}")


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


def settings_class(workload: Workload) -> type[msgspec.Struct] | None:
    """Return the class of a workload's own options; None if it has none. Raises WorkloadError."""
    name = workload.settings
    if name is None:
        return None
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
