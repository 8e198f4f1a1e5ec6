"""Find a workload by name or path, and read its file. Its options are read elsewhere (workload_options.py)."""

import re
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault, UsageError, WorkloadError
from gpusched.model.workload import Workload
from gpusched.model.workload_file import parse_workload
from gpusched.settings import toml_message

__all__ = ["known_workloads", "load_named_workload", "load_workload"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def load_workload(name: str) -> Workload:
    """Return the workload called `name` (`./workloads/NAME`, or one that gpusched brings), or the one in that file.

    Raises UsageError if there is none and WorkloadError if its file is wrong.
    """
    return _read(_find(name))


def load_named_workload(name: str) -> Workload:
    """Return the workload of that name; never that of a file somewhere, so that the name may be somebody else's word.

    Raises UsageError if there is none here, WorkloadError if its file is wrong.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no workload's name", "name the workload's file here: --workload PATH")
    for folder in _folders():
        if (folder / name / "workload.toml").is_file():
            return _read(folder / name / "workload.toml")
    hint = f"copy its folder into ./workloads, or name its file here: --workload PATH; known: {_names(_folders())}"
    raise UsageError(f"the workload {name} is not on this host", hint)


def known_workloads() -> list[str]:
    """Return the names of the workloads in ./workloads, and of those that gpusched brings."""
    return _known(_folders())


def _read(path: Path) -> Workload:
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: not valid TOML: {error}", "write it in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        message = f"{path}: not valid TOML: {toml_message(text, error)}"
        raise WorkloadError(message, "mend the line that it names") from None
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make the file readable") from None
    return parse_workload(document, path)


def _find(name: str) -> Path:
    try:
        return _found(name)
    except OSError as error:
        raise UsageError(f"workload {name!r}: {error.strerror}", "give a name or a path that can be read") from None


def _found(name: str) -> Path:
    given = Path(name)
    if given.suffix == ".py":
        raise UsageError(f"{name} is a program, and no workload", f"gpusched run -- python {name}")
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
    known = _names(folders)
    if name.startswith("-"):
        raise UsageError(f"the option {name} stands before the workload", f"name the workload first: one of {known}")
    from difflib import get_close_matches

    near = get_close_matches(name, _known(folders), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {known}; or give the path of a workload.toml"
    raise UsageError(f"there is no workload {name!r}", hint)


def _names(folders: Sequence[Path]) -> str:
    return ", ".join(_known(folders)) or "none"


def _known(folders: Sequence[Path]) -> list[str]:
    return sorted({file.parent.name for folder in folders for file in folder.glob("*/workload.toml")})


def _folders() -> list[Path]:
    spec = find_spec("workloads")
    brought = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return [folder for folder in (Path("workloads").absolute(), *brought) if folder.is_dir()]
