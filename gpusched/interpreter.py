"""How gpusched's own processes are started, and where they import from: never from a person's directories first.

A module of this gpusched is run with -E and -P (docs.python.org/3/using/cmdline.html), so that neither the working
directory nor the PYTHON* variables of a job's submitter decide what the supervisor or the daemon imports. These
variables stay in the environment, for the command that they are meant for.
"""

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["module_options", "own_command", "own_modules_first"]

_ROOT: Final = str(Path(__file__).parents[1])
_OPTIONS: Final = ("-E", "-P")
_FIND_AND_RUN: Final = (
    "import runpy, sys; sys.path.insert(3, sys.argv.pop(1)); "  # behind the three entries of the standard library
    "runpy._run_module_as_main(sys.argv.pop(1))"
)


def own_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `module` of this gpusched by this interpreter, in any directory and environment."""
    options = (*_OPTIONS, "-s") if sys.flags.no_user_site else _OPTIONS  # as PYTHONNOUSERSITE had it, which -E ignores
    if _is_found():
        return [sys.executable, *options, "-m", module, *arguments]
    return [sys.executable, *options, "-c", _FIND_AND_RUN, _ROOT, module, *arguments]


def module_options(cwd: str) -> tuple[str, ...]:
    """Return what runs a module by an interpreter on another host, in the directory `cwd`: `-P -m`.

    Without the -P where this gpusched lies in `cwd` itself, which may be the only way to find it there.
    """
    return ("-m",) if os.path.realpath(cwd) == os.path.realpath(_ROOT) else ("-P", "-m")


def own_modules_first() -> None:
    """Put the working directory, the script's, and the entries of PYTHONPATH behind all others of sys.path.

    They stay on it, because gpusched itself or what it needs may be found nowhere else.
    """
    theirs = [] if sys.flags.safe_path else sys.path[:1]
    del sys.path[: len(theirs)]
    theirs += filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*(entry for entry in sys.path if entry not in theirs), *theirs]


def _is_found() -> bool:
    """Return whether an interpreter finds this gpusched by itself: it is installed, and not run from its source."""
    import site

    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return _ROOT in places
