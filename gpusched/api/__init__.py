"""The Python API: what the command line can do, for notebooks, sweeps and web pages. See docs/python.md."""

from gpusched.api.functions import job, jobs, launch, plan, run, status, submit
from gpusched.api.handle import Job
from gpusched.api.values import Plan, Status

__all__ = ["Job", "Plan", "Status", "job", "jobs", "launch", "plan", "run", "status", "submit"]
