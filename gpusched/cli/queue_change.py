"""What `hold` and `release` share: what is printed of queued jobs that were changed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusched.api.queue import Change
    from gpusched.model.status import JobStatus

__all__ = ["print_change", "print_jobs"]


def print_change(change: "Change", *, as_json: bool) -> None:
    """Print the daemon's answer, or the jobs as they are then."""
    if as_json:
        print_jobs(change.jobs)
        return
    for line in change.report:
        print(line)


def print_jobs(jobs: Sequence["JobStatus"]) -> None:
    """Print jobs as the JSON that all commands share: {"jobs": [...]}, each as in `status --json`."""
    import msgspec

    print(msgspec.json.encode({"jobs": jobs}).decode())
