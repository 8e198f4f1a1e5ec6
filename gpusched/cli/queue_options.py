"""What `launch -d` and `run` share: the options that say when a job may start, and for how long it may run."""

import datetime as dt
from typing import Annotated, Final, NamedTuple

import typer

from gpusched.cli.daemon_link import complete_job
from gpusched.cli.times import parse_moment, parse_seconds, parse_span
from gpusched.errors import UsageError

__all__ = [
    "GRACE_S",
    "After",
    "AfterAny",
    "At",
    "Detach",
    "Grace",
    "Hold",
    "Name",
    "Priority",
    "QueueWish",
    "Requeue",
    "TimeLimit",
    "parse_grace",
]

_LONGEST_NAME: Final = 200
GRACE_S: Final = 10.0
_SHORTEST_GRACE_S, _LONGEST_GRACE_S = 0.1, 3600.0  # as stop_grace in a workload file

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
        autocompletion=complete_job,
    ),
]
AfterAny = Annotated[
    list[str] | None,
    typer.Option(
        "--after-any",
        help="Start once this job has ended, however it did; may be given several times.",
        metavar="JOB",
        autocompletion=complete_job,
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


class QueueWish(NamedTuple):
    """What a person typed about the queue, as it was typed."""

    name: str | None = None
    priority: int = 0
    after: tuple[str, ...] = ()
    at: str | None = None
    time_limit: str | None = None
    hold: bool = False
    requeue: bool = False
    after_any: tuple[str, ...] = ()

    @property
    def follows(self) -> bool:
        """Whether jobs go before it."""
        return bool(self.after or self.after_any)

    def given(self) -> list[str]:
        """Return the options that were used, such as `--time-limit`."""
        return [
            f"--{field.replace('_', '-')}"
            for field, value in self._asdict().items()
            if value != self._field_defaults[field]
        ]

    def label(self) -> str | None:
        """Return `--name`. Raises UsageError for one that is too long."""
        if self.name is not None and len(self.name) > _LONGEST_NAME:
            raise UsageError(f"--name: {len(self.name)} characters are too many", f"give at most {_LONGEST_NAME}")
        return self.name

    def moment(self) -> float | None:
        """Return `--at` in Unix seconds. Raises UsageError."""
        return None if self.at is None else parse_moment(self.at, dt.datetime.now().astimezone(), "--at")

    def limit_s(self) -> float | None:
        """Return `--time-limit` in seconds. Raises UsageError."""
        return None if self.time_limit is None else parse_span(self.time_limit, "--time-limit")


def parse_grace(text: str | None) -> float:
    """Return `--grace` in seconds, the default where it was not given. Raises UsageError."""
    if text is None:
        return GRACE_S
    span = parse_seconds(text, "--grace")
    if not _SHORTEST_GRACE_S <= span <= _LONGEST_GRACE_S:
        raise UsageError(f"--grace: {text!r} is too {'short' if span < 1 else 'long'}", "give a span from 0.1s to 1h")
    return span
