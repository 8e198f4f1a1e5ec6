"""gpusched: pack many processes onto few GPUs and keep them running.

Importing the package imports nothing else: no NVML, no NumPy, no framework. The names of the Python API
(docs/python.md) are imported when they are used first.
"""

TYPE_CHECKING = False  # typing itself is an import
if TYPE_CHECKING:
    from gpusched.api import Job, Plan, Status, dry_run, job, jobs, join, launch, plan, run, status, submit

__version__ = "0.1.0"
__all__ = ["Job", "Plan", "Status", "dry_run", "job", "jobs", "join", "launch", "plan", "run", "status", "submit"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpusched' has no attribute {name!r}")
    from gpusched import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
