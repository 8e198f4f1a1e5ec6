"""What several commands print of the queue: a job that was put into it, jobs that were changed, or read without it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusched.api.queue import submit
from gpusched.errors import HostFault, JobFailed

if TYPE_CHECKING:
    from gpusched.api.history import Removal
    from gpusched.api.queue import Change, FoundJobs, Submitted
    from gpusched.model.job import Submission
    from gpusched.model.status import JobStatus
    from gpusched.settings import Settings

__all__ = ["noted", "print_change", "print_jobs", "print_removal", "print_submitted", "submit_detached"]


def noted(found: "FoundJobs") -> "tuple[JobStatus, ...]":
    """Return the jobs; on stderr, note that they come without the daemon that keeps the queue."""
    if found.problem is not None:
        print(f"gpusched: {found.problem.message}: this is what the job directories show", file=sys.stderr)
        print(f"  hint: {found.problem.hint}", file=sys.stderr)
    return found.jobs


def print_change(change: "Change", *, as_json: bool) -> None:
    """Print the daemon's answer, or the jobs as they are then."""
    if as_json:
        print_jobs(change.jobs)
        return
    for line in change.report:
        print(line)


def print_jobs(jobs: Sequence["JobStatus"]) -> None:
    """Print jobs as the JSON that all commands share: {"jobs": [...]}, each as in `status --json`, with durations."""
    import time

    import msgspec

    from gpusched.model.status import as_listed

    now = time.time()
    print(msgspec.json.encode({"jobs": [as_listed(job, now) for job in jobs]}).decode())


def submit_detached(submission: "Submission", settings: "Settings", *, as_json: bool) -> str:
    """Put a job into the queue of the daemon, which is started if there is none; print its id, or it as JSON.

    Return the id.
    """
    submitted = submit(submission, settings=settings)
    print_submitted(submitted, as_json=as_json)
    if submission.visible is not None:
        print(f"gpusched: {submission.visible.variable}: no other device is taken", file=sys.stderr)
    return submitted.job.id


def print_removal(removal: "Removal", *, as_json: bool, dry_run: bool = False) -> None:
    """Print which jobs are no more (or would be), and on stderr which stay; with JSON all as one object.

    It ends the command, with 1, if some stay, or a directory cannot be deleted.
    """
    if as_json:
        import json

        print(json.dumps({"removed": removal.ids, "kept": dict(removal.kept), "left": removal.left}))
    else:
        for job_id in removal.ids:
            print(f"{job_id} would be removed" if dry_run else f"{job_id} is removed")
        if not removal.ids and not removal.kept:
            print("no job that has ended matches")
        for job_id, why in removal.kept.items():
            print(f"gpusched: {job_id} stays: {why}", file=sys.stderr)
        for path in removal.left:
            print(f"gpusched: {path} cannot be deleted: chmod -R u+w {path}; rm -r {path}", file=sys.stderr)
    if removal.kept or removal.left:
        raise SystemExit(JobFailed.exit_code)


def print_submitted(submitted: "Submitted", *, as_json: bool) -> None:
    """Print the id of a job that was queued, or it as JSON; on stderr warnings, and what can be typed next."""
    for warning in submitted.warnings:
        print(f"gpusched: warning: {warning}", file=sys.stderr)
    job, name = submitted.job, submitted.job.id
    if as_json:
        import msgspec

        _print_taken(msgspec.json.encode(job).decode(), name)
    else:
        _print_taken(name, name)
        see = f"see it: gpusched ps {name}   " if job.array else ""
        print(f"  {see}follow it: gpusched logs -f {name}   stop it: gpusched stop {name}", file=sys.stderr)


def _print_taken(text: str, name: str) -> None:
    """Print the line, or JSON, for a job that is in the queue. Raises HostFault, with its id, if it cannot."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"{name} is in the queue, and its id cannot be written: {error.strerror}"
        raise HostFault(message, f"follow it: gpusched logs -f {name}; stop it: gpusched stop {name}") from None
