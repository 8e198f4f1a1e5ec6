"""JAX: the environment holds the limit; this keeps a script's own variables from breaking or widening it.

jaxlib reads the variables when it makes the options of its CUDA plugin (jaxlib/xla_client.py,
generate_pjrt_gpu_plugin_options). A script that sets XLA_PYTHON_CLIENT_MEM_FRACTION or XLA_CLIENT_MEM_FRACTION before,
as many do, would either replace the limit or have both names set, which jaxlib answers with ValueError.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpusched.frameworks.limit import Limit, log_message, replace_once
from gpusched.frameworks.peaks import Peaks
from gpusched.frameworks.registry import Framework

__all__ = ["FRAMEWORK", "fraction_variable", "limit_jax"]

_NEW, _OLD = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
_OLD_UNTIL = (0, 10)
_LIMITED_ALLOCATORS = ("default", "bfc")  # the others take what the device has, whatever memory_fraction is


def fraction_variable(jaxlib: str | None) -> str:
    """Return the one variable that limits JAX in that version of jaxlib (None: not installed here).

    Never both: jaxlib raises ValueError when both are set (jaxlib/xla_client.py, generate_pjrt_gpu_plugin_options).
    jaxlib knows the new name from 0.4.33 on, and still takes the older one in 0.10.2, the newest that was checked.
    So the older name is right for every release up to there, also when the script runs in another environment, whose
    jaxlib is not the one asked about; a release after those may have dropped what it calls deprecated.
    """
    release = re.match(r"(\d+)\.(\d+)", jaxlib or "")
    return _NEW if release and (int(release[1]), int(release[2])) > _OLD_UNTIL else _OLD


def limit_jax(limit: Limit) -> None:
    """Cap the memory fraction that jaxlib hands to its plugin; nothing to do in a jaxlib that has no such function."""
    client = sys.modules["jaxlib.xla_client"]
    if hasattr(client, "generate_pjrt_gpu_plugin_options"):
        replace_once(client, "generate_pjrt_gpu_plugin_options", lambda original: _capped(original, limit))


def _capped(original: Any, limit: Limit) -> Any:
    def generate_pjrt_gpu_plugin_options(*args: Any, **kwargs: Any) -> Any:
        _keep_one_name()
        options = original(*args, **kwargs)
        asked = options.get("memory_fraction", limit.ratio)
        if asked > limit.ratio:
            log_message(f"JAX's memory fraction of {asked} is lowered to this process's {limit.ratio}")
        options["memory_fraction"] = min(asked, limit.ratio)
        if options.get("allocator", "default") not in _LIMITED_ALLOCATORS:
            log_message(
                f"JAX's allocator {options['allocator']} keeps to no limit: bfc without preallocation takes its place"
            )
            options |= {"allocator": "bfc", "preallocate": False}
        return options

    return generate_pjrt_gpu_plugin_options


def _keep_one_name() -> None:
    """Leave the smaller fraction under one name, when a script has set the name that gpusched did not use."""
    new, old = os.environ.get(_NEW), os.environ.get(_OLD)
    if new and old:
        os.environ[_NEW] = min(new, old, key=float)
        del os.environ[_OLD]


def _environment(limit: Limit, variable: str) -> dict[str, str]:
    return {variable: f"{limit.ratio:.4f}"}


def _when_started(call: Callable[[], None]) -> None:
    """JAX makes a client for each kind of device when it is first asked for devices, one of CUDA by these functions."""
    client = sys.modules["jaxlib.xla_client"]

    def making(original: Any) -> Any:
        def make_client(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            call()
            return made

        return make_client

    for name in ("make_c_api_client", "make_gpu_client"):  # the second in jaxlib before its plugins
        if hasattr(client, name):
            replace_once(client, name, making)
    if _clients():
        call()


def _clients() -> list[Any]:
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None) or {}
    return [client for client in tuple(backends.values()) if client.platform != "cpu"]


def _peaks() -> Peaks | None:
    found = [device.memory_stats() for client in _clients() for device in client.local_devices()]
    if not found:
        return None
    return Peaks(_sum(found, "peak_bytes_in_use"), _sum(found, "peak_pool_bytes", "pool_bytes"))


def _sum(found: Sequence[Mapping[str, int] | None], *names: str) -> int | None:
    """Return the sum of the first of `names` that each has; None if one has none: a sum of some would be too low."""
    amounts = [next((stats[name] for name in names if name in stats), None) for stats in (one or {} for one in found)]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(found) else None


FRAMEWORK = Framework(
    name="jax",
    title="JAX",
    limiter=limit_jax,
    environment=_environment,
    not_inherited=(_NEW, _OLD, "XLA_PYTHON_CLIENT_ALLOCATOR"),  # an allocator may take memory past the limit
    out_of_memory=rb"RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY",
    when_started=_when_started,
    peaks=_peaks,
    distributions=("jax", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)
