"""The Python API: what the command line can do, for notebooks, sweeps and web pages. See docs/python.md.

Its names are imported when they are used first: a command takes one of its modules, and must not wait for the others.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing itself is an import
if TYPE_CHECKING:
    from gpusched.api.functions import job, jobs, launch, plan, run, status, submit
    from gpusched.api.handle import Job
    from gpusched.api.values import Plan, Status

__all__ = ["Job", "Plan", "Status", "job", "jobs", "launch", "plan", "run", "status", "submit"]

_OF_CLASSES = {"Job": "handle", "Plan": "values", "Status": "values"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpusched.api' has no attribute {name!r}")
    return getattr(import_module(f"gpusched.api.{_OF_CLASSES.get(name, 'functions')}"), name)
