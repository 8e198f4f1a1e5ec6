"""Draws why a job waits: its place, when it starts, and what would let it start now."""

from collections.abc import Iterator
from typing import Final

from gpusched.model.status import JobState
from gpusched.model.why import Why
from gpusched.render.ansi import Text
from gpusched.render.job_format import state_text, what
from gpusched.render.ps import reasons
from gpusched.render.table import wrapped
from gpusched.render.text import cut, printable
from gpusched.units import format_seconds, number

__all__ = ["draw_why"]

_INDENT: Final = 13
_MOST_AHEAD: Final = 8
_ENOUGH: Final = 10
"""Starts, each as likely, of which the first and the ninth tenth can be shown."""


def draw_why(why: Why, now: float, width: int | None) -> Iterator[Text]:
    """Yield its lines, of at most `width` columns if that is given; `now` in Unix seconds."""
    job = why.job
    title = f" {state_text(job)}: {what(job)}"
    yield Text.assemble((job.id, "bold"), title if width is None else cut(title, width - len(job.id)))
    parts = _parts(why, now) if job.state is JobState.QUEUED else _of_another(why, now)
    for title, text in parts:
        first, *rest = wrapped(text, None if width is None else width - _INDENT - 2)
        yield Text.assemble((f"  {title:<{_INDENT - 2}}", "dim"), first)
        for line in rest:
            yield Text.assemble(" " * _INDENT, line)


def _of_another(why: Why, now: float) -> Iterator[tuple[str, str]]:
    """Yield the same of a job that does not wait: why it ended as it did, or what is odd with it."""
    job = why.job
    yield from (("why", text) for text in reasons(job, now))
    if job.state in (JobState.FAILED, JobState.LOST):
        yield "see", f"gpusched results {job.id}" if job.array else f"gpusched logs {job.id}"


def _parts(why: Why, now: float) -> Iterator[tuple[str, str]]:
    text = why.job.why or "it waits for its turn"
    yield "why", printable(text.partition("; expected to start in ")[0] if why.starts else text)
    if why.place is None:
        return
    yield (
        "place",
        f"{why.place} of {number(why.waiting, 'job')} that wait{'s' if why.waiting == 1 else ''} for this machine",
    )
    if why.ahead:
        more = len(why.ahead) - _MOST_AHEAD
        yield "before it", ", ".join(why.ahead[:_MOST_AHEAD]) + (f" and {more} others" if more > 0 else "")
    yield "starts", _expected(why, now)
    if why.ways:
        yield "now with", " or ".join(why.ways)


def _expected(why: Why, now: float) -> str:
    """Return `in 40m00s; 80 % between 10m00s and 2h00m`."""
    if not why.starts:
        return "not predicted: too many jobs are before it, or to play them on takes too long"
    middle = why.start()
    if middle is None:
        return "not known: it waits for what is no job of this queue"
    if len(why.starts) < _ENOUGH:
        return f"in about {_span(middle, now)}, roughly: to find out more takes too long"
    early, late = why.start(0.1), why.start(0.9)
    until = "never" if late is None else _span(late, now)
    if early is None or _span(early, now) == until:
        return f"in {until}"
    return f"in {_span(middle, now)}; 80 % between {_span(early, now)} and {until}"


def _span(moment: float, now: float) -> str:
    return format_seconds(max(1.0, round(moment - now)))
