"""Workloads: which there are, and a new one for a person to make it their own."""

import keyword
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import gpusched
from gpusched.api.validation import require_type
from gpusched.errors import HostFault, UsageError
from gpusched.execution.workloads import known_workloads

__all__ = ["NewWorkload", "new", "workload_names"]

_TEMPLATE: Final = Path(gpusched.__file__).parent / "template"
_PACKAGE: Final = "gpusched.template"
"""What the template is called in its own imports; it is a workload that runs where it lies."""

_WHAT_IS_IN: Final = {
    "learner.py": "the model: learns, is saved, and goes on from there",
    "actor.py": "the environment, in which actors play",
    "settings.py": "its options",
    "workload.toml": "which programs, how many, and what each needs",
    "test_launch.py": "launches it, and checks what it has learnt",
    "__init__.py": "makes the folder a package",
}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")


class NewWorkload(NamedTuple):
    """A workload that was written: its `folder`, and each file in it with what it is for."""

    folder: Path
    files: Mapping[str, str]


def workload_names(begin: str = "") -> list[str]:
    """Return the names that begin so of workloads in ./workloads, and of those that gpusched brings."""
    require_type(begin, str, "begin")
    return [name for name in known_workloads() if name.startswith(begin)]


def new(name: str) -> NewWorkload:
    """Write a workload into ./workloads/NAME that runs at once, in seconds: a learner and two actors.

    Raises UsageError for a name that something else has, or that Python or pytest could not use; HostFault.
    """
    require_type(name, str, "name")
    folder = Path("workloads") / name
    texts = {file: _text(file, name) for file in _WHAT_IS_IN}
    try:
        _require_free(name)
        _write(folder, texts)
    except OSError as error:
        raise HostFault(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "go to a directory of your own, with room: the folder `workloads` is made there",
        ) from None
    return NewWorkload(folder, _WHAT_IS_IN)


def _require_free(name: str) -> None:
    """Raises UsageError for a name that launch, an import or pytest would take for something else."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        hint = "use lower-case letters, digits and _, a letter first, at most 32, and no word of Python's such as class"
        raise UsageError(f"{name!r} cannot be the name of a workload", hint)
    folder = Path("workloads") / name
    for taken in (folder, Path(name)):
        if taken.exists() or taken.is_symlink():
            why = "" if taken is folder else f", which `gpusched launch {name}` would take for the workload"
            raise UsageError(f"{taken} exists{why}", "choose another name; nothing was written")
    if name in known_workloads():
        raise UsageError(f"{name} is a workload that gpusched brings, and yours would hide it", "choose another name")
    if name in sys.stdlib_module_names or find_spec(name) is not None or Path(f"{name}.py").exists():
        raise UsageError(f"{name} is a Python module here, and yours would hide it from pytest", "choose another name")


def _text(file: str, name: str) -> str:
    try:
        return (_TEMPLATE / file).read_text(encoding="utf-8").replace(_PACKAGE, f"workloads.{name}")
    except OSError as error:
        raise HostFault(f"{_TEMPLATE / file}: {error.strerror}", "install gpusched again") from None


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Make the folder, with these files; leave nothing of it behind if that fails. Raises OSError."""
    folder.parent.mkdir(exist_ok=True)
    folder.mkdir()
    try:
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except BaseException:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        raise
