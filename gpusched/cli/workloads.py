"""Find a workload by name or path, and read its file. Its options are read elsewhere (workload_options.py)."""

import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from gpusched.errors import HostFault, UsageError, WorkloadError
from gpusched.model.workload import Workload
from gpusched.model.workload_file import parse_workload

__all__ = ["complete_workload", "load_workload"]


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
