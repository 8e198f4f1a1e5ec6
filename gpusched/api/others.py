"""Whose jobs: this user's, another's, or those of all users of this host."""

import os
from typing import Annotated, Final

import msgspec

from gpusched.api.queue import FoundJobs, find_jobs
from gpusched.api.validation import require_type
from gpusched.errors import UsageError
from gpusched.linux.users import user_name
from gpusched.model.status import JOB_TERMINAL
from gpusched.settings import Settings, queue_settings

__all__ = ["ALL", "jobs_of_user"]

ALL: Final = "all"
"""What `user` calls all users of this host."""


def jobs_of_user(user: str, ended: int = 20, *, settings: Settings | None = None) -> FoundJobs:
    """Return the jobs of a user of this host, or of "all".

    Your own are those of find_jobs, those that live before those of others. Of other users only those are known that
    hold a device, each by its lease: `id` (such as alice/snake-4), `user`, the devices and shares of its replicas, and
    since when. Raises UsageError for a user that the host does not know, HostFault where the leases cannot be read.
    """
    require_type(user, str, "user")
    require_type(ended, Annotated[int, msgspec.Meta(ge=0)], "ended")
    settings, own = settings or queue_settings(os.environ), user_name(os.geteuid())
    found = find_jobs((), ended, settings=settings) if user in (ALL, own) else FoundJobs(())
    if user == own:
        return found
    from gpusched.execution.others import jobs_of_others

    others = jobs_of_others(settings, None if user == ALL else user)
    if not others and user != ALL:
        _require_user(user)
    live = tuple(job for job in found.jobs if job.state not in JOB_TERMINAL)
    over = tuple(job for job in found.jobs if job.state in JOB_TERMINAL)
    return FoundJobs((*live, *others, *over), found.problem)


def _require_user(user: str) -> None:
    import pwd

    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise UsageError(f"there is no user {user!r} on this host", 'give a name, or "all"') from None
