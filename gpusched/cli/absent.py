"""What is printed where no daemon answers, and the job directories are read instead."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusched.api.queue import FoundJobs
    from gpusched.model.status import JobStatus

__all__ = ["noted"]


def noted(found: "FoundJobs") -> "tuple[JobStatus, ...]":
    """Return the jobs; on stderr, note that they come without the daemon that keeps the queue."""
    if found.problem is not None:
        print(f"gpusched: {found.problem.message}: this is what the job directories show", file=sys.stderr)
        print(f"  hint: {found.problem.hint}", file=sys.stderr)
    return found.jobs
