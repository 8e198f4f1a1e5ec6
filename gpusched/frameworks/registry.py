"""The frameworks whose memory is limited, and what each of them registers.

To add one: a module beside `pytorch.py` that holds its Framework as `FRAMEWORK`, and a line with that module in
FRAMEWORKS of the import hook. Such a module imports its framework only within functions, and nothing that is not
Python's own or of gpusched.frameworks: it is imported by replicas, and by what starts them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from gpusched.frameworks.hook.gpusched_import_hook import FRAMEWORKS
from gpusched.frameworks.limit import Limit
from gpusched.frameworks.peaks import Peaks

__all__ = ["Framework", "frameworks", "loaded_frameworks", "registered"]


def _nothing(*_: object) -> None:
    return None


def _no_variables(*_: object) -> dict[str, str]:
    return {}


class Framework(NamedTuple):
    """What a framework registers. The defaults are those of one about which nothing has to be done."""

    name: str
    """The module that a program imports, such as `torch`."""
    title: str
    """What people call it."""
    limiter: Callable[[Limit], None] | None = None
    """Make it keep to the limit in this process, right after it was imported. Raises UsageError and HostFault."""
    environment: Callable[[Limit, str], Mapping[str, str]] = _no_variables
    """Return the variables that limit it; the second argument is the variable that JAX reads on this host."""
    threads: tuple[str, ...] = ()
    """Variables that take a number of threads."""
    not_inherited: tuple[str, ...] = ()
    """Variables that a replica does not inherit: they limit it otherwise, or take memory past its limit."""
    out_of_memory: bytes = b""
    """A regular expression of what it prints when its device has no memory left."""
    libraries: tuple[bytes, ...] = ()
    """Parts of paths of its libraries, if its limit is in force only where `limiter` was called."""
    obstacle_to_fork: Callable[[], str | None] = _nothing
    """Return why this process, which has imported it, must not be forked any more; None if it may be."""
    when_started: Callable[[Callable[[], None]], None] = _nothing
    """Have the argument called in each process in which it starts a device, once it has, and now if it has already."""
    peaks: Callable[[], Peaks | None] = _nothing
    """Return what it has taken of this process's devices; None if it has started none. It starts none itself."""
    distributions: tuple[str, ...] = ()
    """Packages of it whose versions `doctor` reads."""
    compared: tuple[str, ...] = ()
    """Packages of which two hosts of a job must have the same version."""
    only_cpus: str = ""
    """The package of a build that uses no device."""
    install_hint: str = ""
    """What to do on a host that has not got it."""


def frameworks() -> tuple[Framework, ...]:
    """Return what all frameworks have registered."""
    return tuple(map(registered, FRAMEWORKS.values()))


def loaded_frameworks() -> tuple[Framework, ...]:
    """Return those that this process has imported."""
    return tuple(registered(module) for name, module in FRAMEWORKS.items() if name in sys.modules)


@lru_cache(maxsize=None)  # noqa: UP033 (functools.cache is younger than some Pythons that replicas have)
def registered(module: str) -> Framework:
    """Return what is registered in `module`, one of those that FRAMEWORKS names."""
    found: Framework = import_module(module).FRAMEWORK
    return found
