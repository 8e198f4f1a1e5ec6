"""A finder that lets every import pass, and limits a framework as soon as its module has been loaded.

It must stay tiny, because every interpreter of every replica loads it: nothing but `sys` and `os`, and of gpusched
nothing until a framework is there.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take longer than all the rest
    from typing import Any

FRAMEWORKS = {
    "tensorflow": "gpusched.frameworks.tensorflow",
    "torch": "gpusched.frameworks.pytorch",
    "jaxlib.xla_client": "gpusched.frameworks.jax",
    "cupy": "gpusched.frameworks.cupy",
}
"""By the module after whose loading a framework can be limited: the module that registers it (registry.py)."""


def install() -> None:
    """Put the finder first in sys.meta_path, once."""
    if not any(type(finder).__name__ == LimitingFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, LimitingFinder())


class LimitingFinder:
    """Finds the watched modules by asking the finders after it, and has their loaders call the limiter at the end."""

    def __init__(self) -> None:
        self._asking: set[tuple[str, int]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the other finders give for a watched module, None for all others (PEP 451)."""
        asking = (name, get_ident())
        if name not in FRAMEWORKS or asking in self._asking:  # another wrapping finder may ask all finders in its turn
            return None
        self._asking.add(asking)
        try:
            others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
            spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        finally:
            self._asking.discard(asking)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _limit_after_loading(spec.loader, name)
        return spec


def _limit_after_loading(loader: Any, name: str) -> None:
    """Shadow `exec_module` of this one loader for one call: the loader keeps its type and all else it can do."""
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        _limit(name)

    try:
        loader.exec_module = exec_module
    except AttributeError as error:
        _complain(name, error)


def _limit(name: str) -> None:
    if "GPUSCHED_MEMORY_LIMIT_MIB" not in os.environ:
        return
    try:
        _frameworks().limit_framework(FRAMEWORKS[name])
    except Exception as error:  # noqa: BLE001 (a script must run on, whatever is wrong with its limit)
        _complain(name, error)


def _frameworks() -> Any:
    """Return gpusched.frameworks: this interpreter's own, else the one that this file is part of, without sys.path."""
    try:
        import gpusched.frameworks
    except ModuleNotFoundError as error:
        if error.name != "gpusched":
            raise
        import importlib.util

        here = os.path.abspath(__file__)  # noqa: PTH100 (this file is loaded by interpreters that never need pathlib)
        package = here.rsplit(os.sep, 3)[0]
        spec = importlib.util.spec_from_file_location(
            "gpusched", package + "/__init__.py", submodule_search_locations=[package]
        )
        if spec is None or spec.loader is None:
            raise
        sys.modules["gpusched"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["gpusched"])
        import gpusched.frameworks
    return gpusched.frameworks


def _complain(name: str, error: Exception) -> None:
    if sys.stderr is not None:  # print(file=None) would write to stdout
        print(f"gpusched: the memory limit is NOT applied to {name}: {error}", file=sys.stderr)
