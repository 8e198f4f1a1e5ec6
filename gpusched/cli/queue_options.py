"""What `launch -d` and `run` share: the options for when a job may start, and for how long it may run."""

from typing import Annotated

import typer

from gpusched.api.queue import job_ids

__all__ = [
    "After",
    "AfterAny",
    "At",
    "Detach",
    "Grace",
    "Hold",
    "Name",
    "Priority",
    "Requeue",
    "TimeLimit",
]


Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Queue it with the daemon, print its id, and return at once.")
]
Name = Annotated[str | None, typer.Option(help="A name for people, shown by ps.", metavar="TEXT")]
Priority = Annotated[
    int, typer.Option(min=-1_000_000, max=1_000_000, help="Of jobs that wait, the highest starts first.", metavar="N")
]
After = Annotated[
    list[str] | None,
    typer.Option(
        help="Start once this job has succeeded; may be given several times.",
        metavar="JOB",
        autocompletion=job_ids,
    ),
]
AfterAny = Annotated[
    list[str] | None,
    typer.Option(
        "--after-any",
        help="Start once this job has ended, however it did; may be given several times.",
        metavar="JOB",
        autocompletion=job_ids,
    ),
]
At = Annotated[
    str | None, typer.Option(help="Not before this time: 14:30, 2026-11-22T03:00, or +2h from now.", metavar="WHEN")
]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        help="Stop it after so long: 90s, 15m, 2h, HH:MM:SS or 1-12:00:00. Short jobs may start earlier.",
        metavar="SPAN",
    ),
]
Grace = Annotated[
    str | None,
    typer.Option(
        help="How long it may save its work once it is asked to end, such as 30 (seconds), 90s or 5m. [default: 10s]",
        metavar="SPAN",
    ),
]
Hold = Annotated[bool, typer.Option("--hold", help="Keep it in the queue until gpusched release JOB.")]
Requeue = Annotated[bool, typer.Option("--requeue", help="Queue it again if it is lost, as by a reboot of the host.")]
