"""When a job may start, for how long it may run and how it ends, as a person wrote it."""

import datetime as dt
from typing import Final, NamedTuple

from gpusched.errors import UsageError
from gpusched.times import parse_moment, parse_seconds, parse_span

__all__ = ["GRACE_S", "QueueOptions", "parse_grace"]

_LONGEST_NAME: Final = 200
GRACE_S: Final = 10.0
_SHORTEST_GRACE_S, _LONGEST_GRACE_S = 0.1, 3600.0  # as stop_grace in a workload file


class QueueOptions(NamedTuple):
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

    def require_none(self) -> None:
        """Raise UsageError for options that were used: what starts now or not at all stands in no queue."""
        if used := self.given():
            hint = "leave it out, or put the job into the queue: submit it, or join with detach=True"
            raise UsageError(f"{' and '.join(used)} belongs to a job in the queue", hint)

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
