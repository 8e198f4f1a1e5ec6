"""What `hold` and `release` share: ask the daemon for a change of queued jobs, and print what has become of them."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusched.execution.daemon_link import link_to_change
from gpusched.settings import load_settings

if TYPE_CHECKING:
    from gpusched.control.messages import Request
    from gpusched.model.status import JobStatus

__all__ = ["change", "print_jobs"]


def change(request: "Request", jobs: Sequence[str], *, as_json: bool) -> None:
    """Have `request` done, and print the daemon's answer, or the jobs as they are then."""
    with link_to_change(load_settings(os.environ), jobs) as link:
        answer = link.done(request)
        if as_json:
            print_jobs(link.jobs(jobs))
            return
    for line in answer:
        print(line)


def print_jobs(jobs: Sequence["JobStatus"]) -> None:
    """Print jobs as the JSON that all commands share: {"jobs": [...]}, each as in `status --json`."""
    import msgspec

    print(msgspec.json.encode({"jobs": jobs}).decode())
