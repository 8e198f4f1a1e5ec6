"""gpusched: pack many processes onto few GPUs and keep them running.

Importing the package imports nothing else: no NVML, no NumPy, no framework. The names of the Python API
(docs/python.md) are imported when they are used first.
"""

TYPE_CHECKING = False  # typing itself is an import
if TYPE_CHECKING:
    from gpusched.api.executor import Executor
    from gpusched.api.functions import job, jobs, join, launch, run, submit
    from gpusched.api.handle import Job
    from gpusched.api.host import Status, status
    from gpusched.api.launching import dry_run
    from gpusched.api.planning import Plan, plan
    from gpusched.api.sweeping import sweep

__version__ = "0.1.0"
__all__ = [
    "Executor",
    "Job",
    "Plan",
    "Status",
    "dry_run",
    "job",
    "jobs",
    "join",
    "launch",
    "plan",
    "run",
    "status",
    "submit",
    "sweep",
]

_MODULES = {
    "Executor": "executor",
    "Job": "handle",
    "Plan": "planning",
    "Status": "host",
    "status": "host",
    "dry_run": "launching",
    "plan": "planning",
    "sweep": "sweeping",
}
"""Where in gpusched.api the others than those of `functions` are."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpusched' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gpusched.api.{_MODULES.get(name, 'functions')}"), name)


def __dir__() -> "list[str]":  # in quotes: replicas may have an interpreter that knows no list[str]
    return sorted({*globals(), *__all__})
