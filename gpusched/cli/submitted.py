"""What is printed of a job that was put into the queue."""

import sys

from gpusched.api.queue import submit
from gpusched.errors import HostFault
from gpusched.model.job import Submission
from gpusched.settings import Settings

__all__ = ["submit_detached"]


def submit_detached(submission: Submission, settings: Settings, *, as_json: bool) -> str:
    """Put a job into the queue of the daemon, which is started if there is none; print its id, or it as JSON.

    Return the id.
    """
    submitted = submit(submission, settings=settings)
    for warning in submitted.warnings:
        print(f"gpusched: warning: {warning}", file=sys.stderr)
    job, name = submitted.job, submitted.job.id
    if as_json:
        import msgspec

        _print_taken(msgspec.json.encode(job).decode(), name)
    else:
        _print_taken(name, name)
        print(f"  follow it: gpusched logs -f {name}   stop it: gpusched stop {name}", file=sys.stderr)
    if submission.visible is not None:
        print(f"gpusched: {submission.visible.variable}: no other device is taken", file=sys.stderr)
    return name


def _print_taken(text: str, name: str) -> None:
    """Print the line, or JSON, for a job that is in the queue. Raises HostFault, with its id, if it cannot."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"{name} is in the queue, and its id cannot be written: {error.strerror}"
        raise HostFault(message, f"follow it: gpusched logs -f {name}; stop it: gpusched stop {name}") from None
