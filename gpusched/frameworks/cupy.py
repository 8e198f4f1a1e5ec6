"""CuPy: it reads its limit when it is imported; only a script that calls set_limit() itself goes past it."""

from __future__ import annotations

from gpusched.frameworks.limit import Limit
from gpusched.frameworks.registry import Framework

__all__ = ["FRAMEWORK"]

_LIMIT = "CUPY_GPU_MEMORY_LIMIT"


def _environment(limit: Limit, _: str) -> dict[str, str]:
    return {_LIMIT: str(limit.mib << 20)}


def _obstacle_to_fork() -> str:
    return "cupy reads its memory limit when it is imported, and each replica has its own"


FRAMEWORK = Framework(
    name="cupy",
    title="CuPy",
    environment=_environment,
    not_inherited=(_LIMIT,),
    out_of_memory=rb"cupy\.cuda\.memory\.OutOfMemoryError",
    obstacle_to_fork=_obstacle_to_fork,
)
