"""`gpusched new`: write a small workload that runs, for a person to make it their own."""

import keyword
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

import gpusched
from gpusched.errors import HostFault, UsageError
from gpusched.execution.workloads import complete_workload

__all__ = ["new"]

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


def new(
    name: Annotated[
        str, typer.Argument(help="What it is to be called: lower-case letters, digits and _.", metavar="NAME")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a workload of your own into ./workloads/NAME, as an example that runs at once and needs NumPy only.

    A learner and two actors find out which arm of a bandit pays most, within seconds. Comments show where your model
    and environment go. Nothing that is there is overwritten.

    Example: gpusched new mine
    """
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
    steps = {f"gpusched launch {name}": "learns for a few seconds", f"pytest {folder}": "tests that it does"}
    if as_json:
        import json

        print(json.dumps({"folder": str(folder.absolute()), "files": list(texts), "next": list(steps)}))
        return
    print(f"{name} is a workload that runs; make it your own:")
    _print_columns({str(folder / file): what for file, what in _WHAT_IS_IN.items()})
    print("next, in this directory:")
    _print_columns(steps)
    if find_spec("pytest") is None:
        print("pytest is not installed here: pip install pytest")


def _print_columns(rows: Mapping[str, str]) -> None:
    width = max(map(len, rows))
    for first, second in rows.items():
        print(f"  {first:<{width}}  {second}")


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
    if name in complete_workload(name):
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
        shutil.rmtree(folder, ignore_errors=True)
        raise
