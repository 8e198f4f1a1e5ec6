"""What makes frameworks keep to this process's limit; each registers what it takes (registry.py).

It reads the environment of a replica (environment.py) and changes the frameworks that the process has loaded. It never
imports a framework and never starts CUDA before the script does. Scripts that know nothing of gpusched get all of it by
the import hook in `hook/`; a script that wants to be sure, or that runs under `python -I`, calls limit_memory().
"""

from __future__ import annotations

import contextlib
import os
import sys

from gpusched.errors import GpuschedError
from gpusched.frameworks.hook.gpusched_import_hook import FRAMEWORKS, install
from gpusched.frameworks.limit import read_limit

__all__ = ["LIMITS_DIRECTORY", "limit_framework", "limit_memory"]

LIMITS_DIRECTORY = "limits"
"""In the run directory: an empty file `PID.FRAMEWORK` for each framework that is limited in a process."""


def limit_memory() -> tuple[str, ...]:
    """Limit the frameworks that are loaded now, and each of the others as soon as it is loaded; may be called again.

    Returns the modules that are limited now, such as ("tensorflow",); nothing, and without any effect, in a process
    that has no limit (no device, or not launched). Raises UsageError if TensorFlow has started its devices
    already or the limit in the environment is wrong, and HostFault for a framework that cannot be limited.
    """
    if read_limit(os.environ) is None:
        return ()
    install()
    limited: list[str] = []
    problems: list[GpuschedError] = []
    for module in filter(_is_loaded, FRAMEWORKS):  # all of them, also after one that cannot be limited
        try:
            if limit_framework(FRAMEWORKS[module]):
                limited.append(module)
        except GpuschedError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return tuple(limited)


def limit_framework(registration: str) -> bool:
    """Limit the framework that the module `registration` registers and that has been loaded.

    Returns False where there is no limit, or nothing to do in the process. Raises as limit_memory does.
    """
    from gpusched.frameworks.recorder import record_peaks
    from gpusched.frameworks.registry import registered

    limit, framework = read_limit(os.environ), registered(registration)
    if limit is None:
        return False
    record_peaks(framework)
    if framework.limiter is None:
        return False
    framework.limiter(limit)
    _report(framework.name)
    return True


def _report(framework: str) -> None:
    """Leave a file for the supervisor, which warns of processes that have no limit in force."""
    run_dir = os.environ.get("GPUSCHED_RUN_DIR")
    if run_dir:
        directory = os.path.join(run_dir, LIMITS_DIRECTORY)  # noqa: PTH118 (pathlib is heavy)
        with contextlib.suppress(FileExistsError, FileNotFoundError, PermissionError):
            os.mkdir(directory, 0o700)  # noqa: PTH102
        with contextlib.suppress(OSError, ValueError):
            path = os.path.join(directory, f"{os.getpid()}.{framework}")  # noqa: PTH118
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _is_loaded(module: str) -> bool:
    """Return whether `module` is there and complete: one that is being loaded right now is the import hook's."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)
