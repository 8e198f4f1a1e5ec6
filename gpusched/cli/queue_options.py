"""The options of a job that is queued, by `launch -d`, `join -d` and `run`: QUEUE is the API's QueueArguments."""

from typing import Final

from gpusched.api.groups import group_names
from gpusched.api.queue import job_ids
from gpusched.cli.options import Option, Options, flag

__all__ = ["CONDITIONS", "DETACH", "QUEUE"]

DETACH: Final[Options] = {
    "detach": flag("Queue it with the daemon, print its id, and return at once.", "--detach", "-d")
}
QUEUE: Final[Options] = {
    "name": Option("A name to call it by.", metavar="TEXT"),
    "group": Option(
        "A group that it counts in: gpusched group NAME --at-most N limits how many of one run.",
        metavar="NAME",
        complete=group_names,
    ),
    "priority": Option(
        "Of jobs that wait, the highest starts first.",
        metavar="N",
        least=-1_000_000,
        most=1_000_000,
        kind=int,
        default=0,
    ),
    "after": Option(
        "Start once this job has succeeded; may be given several times.",
        metavar="JOB",
        complete=job_ids,
        kind=list[str] | None,
    ),
    "after_any": Option(
        "Start once this job has ended, however it did; may be given several times.",
        metavar="JOB",
        complete=job_ids,
        kind=list[str] | None,
    ),
    "at": Option("Not before this time: 14:30, 2026-11-22T03:00, or +2h from now.", metavar="WHEN"),
    "time_limit": Option(
        "Stop it after so long: 90s, 15m, 2h, HH:MM:SS or 1-12:00:00. Short jobs may start earlier.", metavar="SPAN"
    ),
    "idle_end": Option(
        "End it once its devices have done nothing for so long, such as 2h; it is warned before.", metavar="SPAN"
    ),
    "hold": flag("Keep it in the queue until gpusched release JOB."),
    "requeue": flag("Queue it again if it is lost, as by a reboot of the host."),
    "notify": Option("Run this, or POST to this URL, once it has ended: docs/notifications.md.", metavar="CMD|URL"),
}

CONDITIONS: Final[Options] = {
    "state": Option("Only jobs in these states: queued, running, failed and so on.", metavar="STATE,..."),
    "since": Option("Only jobs that live, or ended so lately: 2h, 1d, 2026-11-22.", metavar="WHEN"),
    "text": Option("Only jobs with this in their command, options, directory or name.", metavar="TEXT"),
    "group": Option("Only jobs in this group.", metavar="NAME", complete=group_names),
    "last": flag("Only the job that came last."),
}
"""What jobs must meet to be shown: those of gpusched.api.queue.select."""
