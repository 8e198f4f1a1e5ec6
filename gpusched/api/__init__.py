"""The Python API: what the command line can do, for notebooks, sweeps and web pages. See docs/python.md.

Its names are imported when they are used first: a command takes one of its modules, and must not wait for the others.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing itself is an import
if TYPE_CHECKING:
    from gpusched.api.functions import job, jobs, join, launch, run, submit
    from gpusched.api.handle import Job
    from gpusched.api.host import Status, status
    from gpusched.api.launching import dry_run
    from gpusched.api.planning import plan
    from gpusched.api.values import Plan

__all__ = [
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
]

_MODULES = {
    "Job": "handle",
    "Plan": "values",
    "Status": "host",
    "status": "host",
    "dry_run": "launching",
    "plan": "planning",
}
"""Where the others than those of `functions` are."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpusched.api' has no attribute {name!r}")
    return getattr(import_module(f"gpusched.api.{_MODULES.get(name, 'functions')}"), name)
