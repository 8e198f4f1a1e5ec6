"""Which interpreter `{python}` is in a workload's command: that of the environment a person works in.

A workload that comes with gpusched runs by gpusched's own interpreter: it needs gpusched and what gpusched brings. Any
other is a person's program, and what that needs is installed where the person has installed it.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

import gpusched
from gpusched.interpreter import module_options
from gpusched.model.workload import Workload

__all__ = ["PLACEHOLDER", "Chosen", "active_python", "with_active_python"]

PLACEHOLDER: Final = "{python}"
_IN_BRACES: Final = re.compile(r"(\{\{\w+\}\})|\{python\}")
"""What stays: doubled braces stand for the text (planner/expand.py)."""

_BROUGHT: Final = Path(gpusched.__file__).parents[1] / "workloads"
_ENVIRONMENTS: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")


class Chosen(NamedTuple):
    """A workload, and whose `python` its commands name; None if that is gpusched's own, and still to be filled in."""

    workload: Workload
    python: str | None

    def notice(self) -> str | None:
        """Return what a person should know of the choice, None if nothing."""
        if self.python is None:
            return None
        without = ", which no replica can be forked from: preload is left out" if self.workload.preload else ""
        return f"{PLACEHOLDER} is {self.python}, of the active environment{without}"


def with_active_python(workload: Workload, environ: Mapping[str, str]) -> Chosen:
    """Return the workload with the active environment's interpreter in its commands, if it runs by that.

    One that comes with gpusched imports nothing from the working directory: a folder `platform` there is a person's.
    """
    python = active_python(environ)
    brought = workload.path is None or workload.path.resolve().is_relative_to(_BROUGHT.resolve())
    if brought:
        return Chosen(_safe_path(workload), None)
    asks = any(PLACEHOLDER in word for role in workload.roles for word in role.command)
    if python is None or not asks:
        return Chosen(workload, None)
    roles = tuple(
        replace(role, command=tuple(_IN_BRACES.sub(lambda found: found[1] or python, word) for word in role.command))
        for role in workload.roles
    )
    return Chosen(replace(workload, roles=roles), python)


def _safe_path(workload: Workload) -> Workload:
    try:
        options = module_options(os.getcwd())  # noqa: PTH109 (the form of its argument)
    except OSError:  # the directory is gone, which its start refuses
        return workload
    roles = tuple(
        replace(role, command=(PLACEHOLDER, *options, *role.command[2:]))
        if role.command[:2] == (PLACEHOLDER, "-m")
        else role
        for role in workload.roles
    )
    return replace(workload, roles=roles)


def active_python(environ: Mapping[str, str]) -> str | None:
    """Return the interpreter of the environment that is active; None if there is none, or if it is gpusched's own."""
    for prefix in (environ.get(name) for name in _ENVIRONMENTS):
        python = Path(prefix or "/nowhere") / "bin" / "python"
        if os.access(python, os.X_OK):
            return None if _is_own(Path(prefix or "")) else str(python.absolute())
    return None


def _is_own(prefix: Path) -> bool:
    return prefix.resolve() == Path(sys.prefix).resolve()
