"""The text of a job that a person searches in."""

import shlex

from gpusched.storage.job import Job

__all__ = ["searched"]


def searched(job: Job) -> str:
    """Return the job's name, its command as it is typed or its workload and options, and its directory; by lines."""
    asked = job.submission
    if asked is None:
        return ""
    if asked.command is not None:
        what = "; ".join(shlex.join(role.command) for role in asked.workload.roles)
    else:
        what = f"{asked.workload.name} {bytes(asked.options).decode(errors='replace')}"
    return "\n".join((asked.name or "", what, asked.cwd))
