"""What frameworks and forks do to each other: when a process must not be forked any more, and what a fork has to renew.

TensorFlow's eager context and a CUDA context have threads and locks that a fork does not get: its first operation would
wait for ever (TensorFlow's own words in tensorflow/tensorflow#2448: "not designed to be fork()-safe"; CUDA answers with
CUDA_ERROR_NOT_INITIALIZED). An import alone starts neither.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

from gpusched.frameworks.registry import loaded_frameworks

__all__ = ["obstacle_to_fork", "renew_after_fork"]

_THREAD_SETTERS = {
    "openblas": (
        "scipy_openblas_set_num_threads64_",
        "scipy_openblas_set_num_threads",
        "openblas_set_num_threads64_",
        "openblas_set_num_threads",
    ),
    "libgomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
}
"""Libraries that read OMP_NUM_THREADS only once, when they are loaded, and what sets the number later."""


def obstacle_to_fork(devices: str = "/dev/nvidia") -> str | None:
    """Return what this process has started that does not survive a fork, as text; None if there is nothing.

    `devices` is what the paths of the driver's devices begin with: a process that has one open has called cuInit.
    """
    for framework in loaded_frameworks():
        if (obstacle := framework.obstacle_to_fork()) is not None:
            return obstacle
    opened = [path for path in _open_paths() if path.startswith(devices)]
    if opened:
        return f"it has started CUDA: {opened[0]} is open"
    return None


def renew_after_fork(threads: int) -> None:
    """Give a fork random numbers and a number of threads of its own, where the libraries loaded do not see to it.

    `random` reseeds itself after a fork. TensorFlow, Keras and JAX draw a seed when they first need one, and MKL reads
    its number of threads then.
    """
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    if threads > 1:  # they were loaded with 1
        _set_threads(threads)
        numexpr = sys.modules.get("numexpr")
        if numexpr is not None:
            with contextlib.suppress(AttributeError, ValueError):  # half imported, or NUMEXPR_MAX_THREADS is less
                numexpr.set_num_threads(threads)


def _open_paths() -> list[str]:
    paths = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (pathlib is heavy)
        with contextlib.suppress(OSError):  # the listing's own
            paths.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    return paths


def _set_threads(threads: int) -> None:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if ".so" in line}
    for path in paths:
        name = path.rpartition("/")[2]
        setters = next((names for part, names in _THREAD_SETTERS.items() if part in name), ())
        for setter in setters:
            with contextlib.suppress(OSError, AttributeError):  # another build has another name for it
                getattr(ctypes.CDLL(path), setter)(threads)
                break
