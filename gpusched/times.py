"""Times as people type them: spans such as `90s` or `1-12:00:00`, and moments such as `14:30` or `+2h`. Pure."""

import datetime as dt
import re
from typing import Final

from gpusched.errors import UsageError

__all__ = ["parse_moment", "parse_seconds", "parse_since", "parse_span"]

_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_PARTS: Final = re.compile(
    r"(?:(\d{1,6}(?:\.\d{1,3})?)d)?(?:(\d{1,7}(?:\.\d{1,3})?)h)?"
    r"(?:(\d{1,8}(?:\.\d{1,3})?)m(?:in)?)?(?:(\d{1,9}(?:\.\d{1,3})?)s)?",
    re.ASCII,
)
_CLOCK: Final = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):([0-5]\d):([0-5]\d)", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_LONGEST_S: Final = 1e9
_MOST_YEARS: Final = 31
_SPAN_HINT: Final = "give a number and a unit, such as 90s, 15m, 2h or 1h30m, or HH:MM:SS, or days as in 1-12:00:00"
_MOMENT_HINT: Final = "give a time such as 14:30, 2026-11-22T03:00 or 2026-11-22, or a span from now such as +2h"


def parse_span(text: str, what: str) -> float:
    """Read a span of time as seconds. Raises UsageError, naming `what`, for anything else than a positive one."""
    stripped = text.strip()
    clock = _CLOCK.fullmatch(stripped)
    parts = _PARTS.fullmatch(stripped) if stripped else None
    if clock is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        span = float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
    elif parts is not None:
        span = sum(float(part or 0) * size for part, size in zip(parts.groups(), _SECONDS.values(), strict=True))
    else:
        problem = "has no unit" if stripped.replace(".", "", 1).isdecimal() else "is not a span of time"
        raise UsageError(f"{what}: {text!r} {problem}", _SPAN_HINT)
    if not 0 < span <= _LONGEST_S:
        raise UsageError(f"{what}: {text!r} is {'no time at all' if span <= 0 else 'over 31 years'}", _SPAN_HINT)
    return span


def parse_seconds(text: str, what: str) -> float:
    """Read a span as parse_span does, where a bare number can only mean seconds (Slurm's limits are minutes)."""
    is_bare = text.strip().replace(".", "", 1).isdecimal()
    return parse_span(f"{text.strip()}s" if is_bare else text, what)


def parse_moment(text: str, now: dt.datetime, what: str) -> float:
    """Read a moment after `now` (which knows its time zone) as Unix seconds; a time of day is the next one.

    Raises UsageError, naming `what`, for anything else, and for a moment that is over.
    """
    stripped = text.strip()
    if stripped.startswith("+"):
        return now.timestamp() + parse_span(stripped[1:], what)
    time_of_day = _TIME_OF_DAY.fullmatch(stripped)
    if time_of_day is not None:
        return _next(now, *(int(part or 0) for part in time_of_day.groups())).timestamp()
    try:
        moment = dt.datetime.fromisoformat(stripped)
    except ValueError:
        raise UsageError(f"{what}: {text!r} is not a time", _MOMENT_HINT) from None
    if moment.year > now.year + _MOST_YEARS:  # near the year 9999 it may be none in another time zone
        raise UsageError(f"{what}: {text!r} is over {_MOST_YEARS} years from now", _MOMENT_HINT)
    if moment.year < now.year - 1:
        raise _over(what, text, now)
    moment = moment.astimezone(now.tzinfo) if moment.tzinfo else moment.astimezone()  # without a zone: the local one
    if moment <= now:
        raise _over(what, text, now)
    return moment.timestamp()


def parse_since(text: str, now: dt.datetime, what: str) -> float:
    """Read a moment before `now` as Unix seconds: a span such as `2h`, so long ago, or a date with or without a time.

    Raises UsageError, naming `what`, for anything else.
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip()).astimezone()  # without a zone: the local one
    except (ValueError, OverflowError):
        return now.timestamp() - parse_span(text, what)
    if moment > now:
        raise UsageError(f"{what}: {text!r} has not come yet: it is {now:%Y-%m-%d %H:%M}", "give one that is over")
    return moment.timestamp()


def _over(what: str, text: str, now: dt.datetime) -> UsageError:
    return UsageError(f"{what}: {text!r} is over: it is {now:%Y-%m-%d %H:%M}", _MOMENT_HINT)


def _next(now: dt.datetime, hour: int, minute: int, second: int) -> dt.datetime:
    """Return the next moment of that time of day, in the local zone, whose offset may change until then."""
    here = now.replace(tzinfo=None)
    moment = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if moment <= here:
        moment += dt.timedelta(days=1)
    return moment.astimezone()
