"""CuPy: it reads its limit when it is imported; only a script that calls set_limit() itself goes past it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from gpusched.frameworks.limit import Limit
from gpusched.frameworks.peaks import Peaks
from gpusched.frameworks.registry import Framework

__all__ = ["FRAMEWORK"]

_LIMIT = "CUPY_GPU_MEMORY_LIMIT"


def _environment(limit: Limit, _: str) -> dict[str, str]:
    return {_LIMIT: str(limit.mib << 20)}


def _obstacle_to_fork() -> str:
    return "cupy reads its memory limit when it is imported, and each replica has its own"


def _when_started(call: Callable[[], None]) -> None:
    """Stand in the place of the allocator for the first allocation: nothing else shows that CuPy has started a device.

    A program that sets an allocator of its own before that does not use CuPy's pool, of which nothing is known then.
    """
    cuda: Any = sys.modules["cupy"].cuda
    usual = cuda.get_allocator()

    def first(size: Any) -> Any:
        memory = usual(size)
        with contextlib.suppress(ValueError):  # within cupy.cuda.using_allocator: at a later allocation, then
            if cuda.get_allocator() is first:
                cuda.set_allocator(usual)
        call()
        return memory

    cuda.set_allocator(first)


def _peaks() -> Peaks:
    """CuPy counts no peaks, but its pool only grows until a program empties it. The pool counts for one device."""
    cupy: Any = sys.modules["cupy"]
    if cupy.cuda.runtime.getDeviceCount() != 1:  # to ask for another device would start that one
        return Peaks(None, None)
    return Peaks(None, cupy.get_default_memory_pool().total_bytes())


FRAMEWORK = Framework(
    name="cupy",
    title="CuPy",
    environment=_environment,
    not_inherited=(_LIMIT,),
    out_of_memory=rb"cupy\.cuda\.memory\.OutOfMemoryError",
    obstacle_to_fork=_obstacle_to_fork,
    when_started=_when_started,
    peaks=_peaks,
)
