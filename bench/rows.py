"""How a row is measured in a process of its own: with this environment's Python, or with Ray's."""

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Final

from bench.fresh import ROOT, fresh
from bench.section import Measured, Missing

__all__ = ["RAY_PYTHON", "by_python", "by_ray", "not_quickly", "python_with"]

RAY_PYTHON: Final = ROOT / ".venv-ray" / "bin" / "python"
_QUICKLY: Final = ("--quick",)

Measure = Callable[[bool], Mapping[str, float]]


def python_with(*packages: str) -> str:
    """Return the Python that has these packages: this one, or that of Ray's environment."""
    here = all(map(find_spec, packages))
    return sys.executable if here or not RAY_PYTHON.exists() else str(RAY_PYTHON)


def by_python(module: str, *words: str, environ: Mapping[str, str] | None = None) -> Measure:
    """Return what a Row wants: a function that runs `python -m module words...`, with --quick if it shall be quick."""

    def measure(quick: bool) -> Mapping[str, float]:
        return fresh(module, *words, *(_QUICKLY if quick else ()), environ=environ)

    return measure


def by_ray(module: str, *words: str) -> Measure:
    """Return the same for Ray's environment; its function raises Missing where there is none."""

    def measure(quick: bool) -> Mapping[str, float]:
        if not RAY_PYTHON.exists():
            raise Missing("Ray's environment is not there: `make .venv-ray`")
        return fresh(module, *words, *(_QUICKLY if quick else ()), python=str(RAY_PYTHON))

    return measure


def not_quickly(measure: Callable[[bool], Measured]) -> Callable[[bool], Measured]:
    """Return `measure` for a row that takes too long for a first look: there it raises Missing."""

    def only_in_full(quick: bool) -> Measured:
        if quick:
            raise Missing("it takes too long for a quick look")
        return measure(quick)

    return only_in_full
