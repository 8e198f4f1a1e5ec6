"""What a zygote imports, and where; and what this process itself has imported, so that its zygote can be a fork."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusched.environment import child_environment, modules_to_preload
from gpusched.execution.spec import JobSpec
from gpusched.zygote.protocol import Command, command_of, settles_at_start

if TYPE_CHECKING:
    from gpusched.zygote.replica import Fresh

__all__ = [
    "Imported",
    "Preload",
    "ZygoteForked",
    "first_on_path",
    "import_environment",
    "imported",
    "note_imported",
    "preload_of",
]

_imported: list["Imported"] = []
_ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""Libraries that start threads when they are loaded leave it here; forking.py gives each replica its number."""


class Preload(NamedTuple):
    """The `modules`, imported in the directory `cwd` by an interpreter with -P, if `safe_path`, or without."""

    modules: tuple[str, ...]
    safe_path: bool
    cwd: str


class Imported(NamedTuple):
    """What this process has imported, and with which sys.path a zygote goes on; `fresh`: how it was before.

    `settled` is what its interpreter read from the environment when it started.
    """

    preload: Preload
    settled: Mapping[str, str]
    path: Sequence[str]
    fresh: "Fresh"

    def serves(self, preload: Preload, env: Mapping[str, str]) -> bool:
        """Return whether a fork can be the zygote of `preload` that would be executed in the environment `env`."""
        return preload == self.preload and settles_at_start(env) == self.settled


class ZygoteForked(BaseException):
    """This process is a fork that is to be a zygote: what a supervisor does is left, up to the bottom of the stack.

    `control` is the descriptor of the zygote's socket.
    """

    def __init__(self, control: int) -> None:
        super().__init__(control)
        self.control: Final = control


def note_imported(found: Imported) -> None:
    """Note that this process, and so each fork of it, has imported what is to be preloaded."""
    _imported[:] = [found]


def imported() -> Imported | None:
    """Return what this process has imported to be forked."""
    return _imported[0] if _imported else None


def preload_of(spec: JobSpec, environ: Mapping[str, str]) -> tuple[Preload, Command] | None:
    """Return what all replicas of a job need, with the first command that a fork can stand for; None without both."""
    modules = modules_to_preload(spec.preload, environ)
    if spec.attached or not modules:
        return None
    for one in spec.replicas:
        command = command_of(one.argv, sys.executable, environ.get("PATH"))
        if command is not None:
            return Preload(modules, command.safe_path, one.cwd), command
    return None


def import_environment(environ: Mapping[str, str], *layers: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which modules are imported for replicas of a job that has `environ`."""
    return child_environment(environ, *layers, _ONE_THREAD)


def first_on_path(command: Command, cwd: str) -> str | None:
    """Return the directory from which Python imports first when it runs a command; None with -P."""
    if command.safe_path:
        return None
    return cwd if command.module else os.path.dirname(os.path.join(cwd, command.target))  # noqa: PTH118, PTH120
