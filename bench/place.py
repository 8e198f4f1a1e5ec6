"""Where something is measured: the machine, and the versions of what takes part."""

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Final

from bench.fresh import ROOT
from bench.results import Place

__all__ = ["here"]

_PACKAGES: Final = ("tensorflow", "keras", "numpy", "numba", "pyzmq", "gpustat", "nvitop")


def here() -> Place:
    """Return the machine that this runs on, with the versions of this environment and of Ray's."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Place(
        cpu=_cpu(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory / 2**30),
        kernel=platform.release(),
        versions=_versions(),
    )


def _cpu(cpuinfo: str) -> str:
    """Return the model of the first CPU, as /proc/cpuinfo has it."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, platform.machine())


def _versions() -> Mapping[str, str]:
    found = {"gpusched": _commit(), "python": platform.python_version()}
    found |= {package: text for package in _PACKAGES if (text := _version(package))}
    if "tensorflow" not in found:
        found |= {"tensorflow": _version("tensorflow-cpu")}  # the build for a host without a GPU
    rays = [
        one.version
        for one in distributions(path=[*map(str, ROOT.glob(".venv-ray/lib/python3*/site-packages"))])
        if one.name == "ray"
    ]
    return found | ({"ray": rays[0]} if rays else {})


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    """Return the version and the commit, with a `+` if files differ from it; the version alone outside a checkout."""
    from gpusched import __version__

    try:
        argv = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__} ({told.stdout.strip()})"
