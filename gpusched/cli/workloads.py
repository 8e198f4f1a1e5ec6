"""Find a workload by name or path, and read its options: what follows the name on the command line of `launch`."""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Never

import msgspec

from gpusched.errors import HostFault, UsageError, WorkloadError
from gpusched.model.workload import Workload
from gpusched.model.workload_file import parse_workload

__all__ = ["complete_workload", "load_workload", "read_options"]


def load_workload(name: str) -> Workload:
    """Return the workload called `name` (`./workloads/NAME`, or one that gpusched brings), or the one in that file.

    Raises UsageError if there is none and WorkloadError if its file is wrong.
    """
    path = _find(name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: not valid TOML: {error}", "mend the line that it names") from None
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make the file readable") from None
    return parse_workload(document, path)


def complete_workload(incomplete: str) -> list[str]:
    """Return the names of workloads that begin so, for the shell's completion."""
    return [name for name in _known(_folders()) if name.startswith(incomplete)]


def _find(name: str) -> Path:
    try:
        return _found(name)
    except OSError as error:
        raise UsageError(f"workload {name!r}: {error.strerror}", "give a name or a path that can be read") from None


def _found(name: str) -> Path:
    given = Path(name)
    if given.suffix == ".toml" or len(given.parts) > 1 or given.is_dir():
        path = given / "workload.toml" if given.is_dir() else given
        if not path.is_file():
            raise UsageError(
                f"there is no workload file {path}", "give a workload's name, or the path of its workload.toml"
            )
        return path.absolute()
    folders = _folders()
    for folder in folders:
        if (folder / name / "workload.toml").is_file():
            return folder / name / "workload.toml"
    known = ", ".join(_known(folders)) or "none"
    raise UsageError(f"there is no workload {name!r}", f"known here: {known}; or give a file's path")


def _known(folders: Sequence[Path]) -> list[str]:
    return sorted({file.parent.name for folder in folders for file in folder.glob("*/workload.toml")})


def _folders() -> list[Path]:
    spec = find_spec("workloads")
    brought = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return [folder for folder in (Path("workloads").absolute(), *brought) if folder.is_dir()]


def read_options(workload: Workload, words: Sequence[str]) -> bytes:
    """Return the workload's options as JSON: `words` such as `--network small` over the defaults of its settings class.

    Raises UsageError for an unknown option or a value out of range, and SystemExit(0) after `--help`.
    """
    if workload.settings is None:
        if words:
            raise UsageError(f"the workload {workload.name} has no options: {' '.join(words)!r} is not understood")
        return b"{}"
    settings = _settings_class(workload, workload.settings)
    fields = msgspec.structs.fields(settings)
    parser = _Parser(prog=f"gpusched launch {workload.name}", description=settings.__doc__, allow_abbrev=False)
    for field in fields:
        kind, text = _kind_and_text(field.type)
        choices = kind.values if isinstance(kind, msgspec.inspect.LiteralType) else None
        told = f"{text} (default: {field.default if field.default != '' else 'none'})"
        option = "--" + field.name.replace("_", "-")
        action: Any = {"action": argparse.BooleanOptionalAction} if isinstance(kind, msgspec.inspect.BoolType) else {}
        if not action:
            action = {"choices": choices, "metavar": None if choices else field.name.upper().rpartition("_")[2]}
        parser.add_argument(option, dest=field.name, default=None, help=told.replace("%", "%%"), **action)
    given = {name: value for name, value in vars(parser.parse_args(list(words))).items() if value is not None}
    try:
        chosen = msgspec.convert(given, settings, strict=False)
        _check(chosen)
    except ValueError as error:  # msgspec's own errors are ValueErrors too
        what = str(error).replace("`$.", "`--")
        raise UsageError(
            f"an option of {workload.name}: {what}", f"see gpusched launch {workload.name} -- --help"
        ) from None
    return msgspec.json.encode(chosen)


def _check(chosen: msgspec.Struct) -> None:
    """Let the settings say what their types cannot: a `check` method that raises ValueError."""
    check = getattr(chosen, "check", None)
    if check is not None:
        check()


def _kind_and_text(annotation: Any) -> tuple[msgspec.inspect.Type, str]:
    kind = msgspec.inspect.type_info(annotation)
    if isinstance(kind, msgspec.inspect.Metadata):
        return kind.type, str((kind.extra_json_schema or {}).get("description", ""))
    return kind, ""


def _settings_class(workload: Workload, name: str) -> type[msgspec.Struct]:
    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does for the replicas
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 (the module is the workload's own, and may break in any way)
        where = f"{workload.path}: job.settings"
        raise WorkloadError(f"{where}: {name!r}: {error}", 'name a class, such as "my.settings:Settings"') from None
    if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
        raise WorkloadError(
            f"{workload.path}: job.settings: {name!r} is no msgspec.Struct", "derive it from msgspec.Struct"
        )
    return found


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours."""

    def error(self, message: str) -> Never:
        raise UsageError(message, f"see {self.prog} -- --help")
