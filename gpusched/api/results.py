"""What came of the members of an array: their parameters, how they ended, and what they reported last."""

import os
from collections.abc import Iterator
from typing import Final

from gpusched.api.selecting import linked, only, selected
from gpusched.api.validation import SomeJobs, require_one
from gpusched.errors import UsageError
from gpusched.model.array import MemberResult, number_of_member
from gpusched.model.status import JOB_TERMINAL, JobStatus
from gpusched.settings import Settings, queue_settings

__all__ = ["Results", "results"]

_SEVERAL: Final = 2


class Results:
    """The results of an array's members that have begun, the best score first. It prints as a table."""

    def __init__(self, job: JobStatus, members: tuple[MemberResult, ...]) -> None:
        self.job: Final = job
        self.members: Final = members
        self.names: Final = tuple(job.parameters)
        """The names of the parameters."""

    def __iter__(self) -> Iterator[MemberResult]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def csv(self) -> str:
        """Return them as CSV, with a header: parameters, state, seconds, and all numbers that were reported."""
        from gpusched.render.results import results_csv

        return results_csv(self.members, self.names)

    def __repr__(self) -> str:
        from gpusched.render.ansi import plain
        from gpusched.render.results import draw_results

        return plain(lambda width: draw_results(self.members, self.names, width))

    def _repr_html_(self) -> str:
        from gpusched.render.results import results_html

        return results_html(self.members, self.names)


def results(array: SomeJobs, *, settings: Settings | None = None) -> Results:
    """Return what came of an array's members: those that have begun, the best score first, the others by number.

    The score is the `score` of a member's last report: a line of JSON in progress.jsonl in its directory, as
    gpusched.channel.Progress writes it. Raises UsageError for a job that is no array, NotFound, NoDaemon and HostFault.
    """
    name = require_one(array, "array")
    with linked(settings or queue_settings(os.environ), (name,)) as link:
        job_id = only(name, selected(link, (name,), _SEVERAL))
        (job,) = link.jobs((job_id,))
        if job.array is None:
            raise UsageError(f"{job_id} is no array", "see gpusched sweep --help")
        members = link.jobs(selected(link, (f"{job_id}[]",))) if job.array.waiting < job.array.count else ()
    found = sorted(map(_result, members), key=lambda one: one.number)
    found.sort(key=lambda one: -one.score if one.score is not None else float("inf"))
    return Results(job, tuple(found))


def _result(job: JobStatus) -> MemberResult:
    numbers = {
        name: float(value)
        for name, value in (job.progress or {}).items()
        if isinstance(value, int | float) and name != "time"
    }
    ended = job.ended if job.state in JOB_TERMINAL else None
    return MemberResult(
        id=job.id,
        number=number_of_member(job.id),
        parameters=job.parameters,
        state=str(job.state),
        seconds=None if ended is None or job.started is None else ended - job.started,
        score=numbers.get("score"),
        report=numbers,
        message=job.message,
    )
