"""A workload as an argument of the Python API: by its name or its file, under its own options."""

import os
from collections.abc import Mapping
from typing import Any

from gpusched.api.validation import require_type
from gpusched.execution.workload_options import Configured, chosen_under, configured_by, settings_class
from gpusched.execution.workloads import load_workload
from gpusched.model.workload import Workload

__all__ = [
    "Options",
    "WorkloadName",
    "chosen_under",
    "chosen_workload",
    "named_workload",
    "own_options",
    "settings_class",
]

Options = Mapping[str, object]
"""A workload's own options by name, such as {"network": "small"}."""

WorkloadName = str | os.PathLike[str]
"""A workload by its name, or by the path of its workload.toml."""


def named_workload(workload: WorkloadName) -> Workload:
    """Return the workload as its file has it. Raises UsageError, and WorkloadError for a wrong file."""
    name = os.fspath(workload) if isinstance(workload, os.PathLike) else workload
    require_type(name, str, "workload")
    return load_workload(name)


def own_options(options: Options | None) -> Options:
    """Return the options that are given. Raises UsageError for what is no mapping by names."""
    require_type(options, dict[str, Any] | None, "options")
    return options or {}


def chosen_workload(workload: WorkloadName, options: Options | None) -> Configured:
    """Return the workload under `options`, with the Python of the active environment. Raises UsageError."""
    from gpusched.execution.active_python import with_active_python  # a plan has none

    return configured_by(with_active_python(named_workload(workload), os.environ).workload, own_options(options))
