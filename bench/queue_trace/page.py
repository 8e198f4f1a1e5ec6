"""What was measured of placement and queue, as a part of docs/benchmarks.md; docs/queue.json is its source."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from bench.queue_trace.goals import EASY, goals, row_of, shown
from bench.queue_trace.results import Found, Measured, ratio

__all__ = ["part"]

_OURS: Final = "gpusched"


def part(found: Found) -> str:
    """Return the part of the page, in Markdown; nothing where nothing was measured."""
    if not found.get("queue"):
        return ""
    parts = [_ABOUT, _goals(found), *(_waits(found, devices) for devices in _devices(found)), _SPREAD]
    more = {"stream": _stream, "frontier": _frontier, "between": _between, "predictions": _predictions}
    more |= {"forecasts": _forecasts, "saturation": _saturation, "pass": _passes, "history": _history}
    return "\n".join([*parts, *(table(found[what]) for what, table in more.items() if found.get(what))])


_ABOUT: Final = """\
## The queue

The real scheduler in simulated time (`python -m bench.queue_trace`): jobs come by chance, with sizes and run times of
the public openb trace of Alibaba, and keep the GPUs busy to 90 % or ask for 110 % of them. No job runs for more than a
day: 81 of the 7,064 tasks did, for up to five months, and are cut to a day; the 861 that have no run time get the
median of the others. As many jobs may run at a time as have room: on 64 GPUs that is more than `most_jobs` lets run by
default (64). All jobs are commands of one process, but for the rows of launches. Where commands are repeated, five
runs of each are known when it comes; a daemon that has just started knows those of the last thousand jobs. Of the jobs
that may pass a head gpusched starts the shortest first, and EASY the oldest; *EASY, shortest first* has our order.
Means of all seeds, ± half of the 95 % interval; `worst`, `latest` and `longest` are the largest of all seeds, `heads
past the bound` and `beyond the bound` are sums over all seeds. The seeds differ much, and alike for all rows. So
quotients compare seed by seed, with the interval that the pairs give.

![Mean waits, and what the bound on a head's delay costs](images/queue.png)
"""

_SPREAD: Final = """\
*Commands repeated, spread 0.5*: five earlier runs of each command are known (of a new one none), and its run times are
a lognormal distribution whose logarithm deviates by 0.5. *Shapes*: nothing repeats but what a task asks for (126
shapes). Large jobs want 2 to 8 whole GPUs. A head is *late* if it starts over a minute after the earliest moment for
which it was ever expected. *Heads past the bound* were late by more than `most_delay`. *Beyond the bound*: how many of
these started later than what ran then (with a limit typed: until that was over) had left them room, which the rule
forbids.
"""


def _devices(found: Found) -> list[float]:
    return sorted({float(row.of["devices"]) for row in found["queue"]})


def _goals(found: Found) -> str:
    lines = ["| what it must show | measured |", "|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {measured} |" for what, measured in goals(found)), ""])


def _cell(row: Measured | None, figure: str, digits: str = ".3g") -> str:
    mean = row.mean(figure) if row else None
    if row is None or mean is None:
        return ""
    half = row.half_width(figure)
    return f"{mean:{digits}} ± {half:.2g}" if half else f"{mean:{digits}}"


def _waits(found: Found, devices: float) -> str:
    figures = ("mean wait h", "p95 wait h", "large wait h", "worst large wait h", "use %", "heads late %", "latest h")
    rows = [row for row in found["queue"] if row.of["devices"] == devices]
    parts = []
    for load_ in (0.9, 1.1):
        easy = row_of(rows, devices=devices, load=load_, queue=EASY)
        loaded = [row for row in rows if row.of["load"] == load_]
        if not loaded:
            continue
        most = max(len(row.seeds) for row in loaded)
        lines = [[_name(row, most), *(_cell(row, one) for one in figures), _by(row, easy)] for row in loaded]
        about = f"{devices:g} GPUs, {load_:.0%} load ({_seeds(loaded)}):"
        parts.append(_table(about, ["", *figures, "mean wait by EASY's"], lines))
    return "\n".join(parts)


def _table(about: str, headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = "|".join("---" if number == 0 else "--:" for number in range(len(headings)))
    return "\n".join([about, "", _line(headings), f"|{rule}|", *map(_line, lines), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(row: Measured, most: int) -> str:
    """Return its name, with how many seeds it has if that is not `most`: then only its quotient can be compared."""
    name = str(row.of["queue"])
    name = f"**{name}**" if name.startswith(_OURS) else name
    return name if len(row.seeds) == most else f"{name} ({len(row.seeds)} seeds)"


def _by(row: Measured, other: Measured | None, figure: str = "mean wait h") -> str:
    found = ratio(row, other, figure) if other and row is not other else None
    return shown(*found) if found else ""


def _jobs(rows: Sequence[Measured]) -> str:
    numbers = sorted({int(row.of["jobs"]) for row in rows if "jobs" in row.of})
    return f"{' or '.join(f'{number:,}' for number in numbers)} jobs, " if numbers else ""


def _seeds(rows: Sequence[Measured]) -> str:
    seeds, dates = sorted({len(row.seeds) for row in rows}), sorted({row.date for row in rows})
    return f"{_jobs(rows)}{' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'}, {' and '.join(dates)}"


def _stream(rows: Sequence[Measured]) -> str:
    about = (
        "A stream of parts of a GPU, and as one job in 200 one that wants all GPUs for an hour (`large`): whether the "
        f"stream starves it ({_seeds(rows)}):"
    )
    figures = ("mean wait h", "large wait h", "worst large wait h", "use %", "latest h", *_BOUND)
    return _queues(about, figures, rows, ("large wait h", lambda _: "FIFO"))


def _frontier(rows: Sequence[Measured]) -> str:
    figures = ("mean wait h", "p95 wait h", "large wait h", "late p99 h", "latest h", *_BOUND)
    about = f"What the bound on a head's delay (`most_delay`) costs ({_seeds(rows)}):"
    return _queues(about, figures, rows, ("mean wait h", lambda name: f"{name.partition(', ')[0]}, most_delay 2d"))


def _between(rows: Sequence[Measured]) -> str:
    about = (
        "The daemon decides every two seconds while a job waits; the tables above have a decision at each arrival and "
        f"each end. What it changes if it also decides once in each minute between ({_seeds(rows)}):"
    )
    figures = ("mean wait h", "p95 wait h", "large wait h", "worst large wait h", "latest h")
    alone = "passes at arrivals and ends"
    return _queues(about, figures, rows, ("mean wait h", lambda name: f"{name.partition(', ')[0]}, {alone}"))


_BOUND: Final = ("heads past the bound", "beyond the bound")


def _queues(
    about: str, figures: Sequence[str], rows: Sequence[Measured], compared: tuple[str, Callable[[str], str]]
) -> str:
    """Return the table; its last column compares a figure with that of the queue which a row's name leads to."""
    figure, than = compared
    lines = []
    for row in rows:
        name = str(row.of["queue"])
        other = row_of(rows, devices=row.of["devices"], load=row.of["load"], queue=than(name))
        lines.append([_where(row, name), *(_cell(row, one) for one in figures), _by(row, other, figure)])
    return _table(about, ["", *figures, f"{figure.removesuffix(' h')} by that of {than('…')}"], lines)


def _where(row: Measured, name: str) -> str:
    return f"{row.of['devices']} GPUs, {float(row.of['load']):.0%}: {name}"


def _predictions(rows: Sequence[Measured]) -> str:
    about = "How near predictions are to the real run times, in %: the smaller by the larger, mean of all jobs"
    lines = [[str(row.of["commands"]), *(_cell(row, one) for one in row.values)] for row in rows]
    return _table(f"{about} ({_seeds(rows)}):", ["", *rows[0].values], lines)


def _forecasts(rows: Sequence[Measured]) -> str:
    about = (
        "What `gpusched why` foretells of a job's start when it comes, of one in 40 of those that wait: how many of "
        "them start within what it calls 80 %, sooner and later (in %), and by how many hours the middle is wrong, in "
        "the median. It does not know which jobs will come later and pass. Here it plays all of its 24 futures; the "
        f"daemon ends after two seconds of CPU time, behind a hundred jobs with about nine ({_seeds(rows)}):"
    )
    figures = ("within", "sooner", "later", "unknown", "off h")
    lines = [[_where(row, str(row.of["commands"])), *(_cell(row, one) for one in figures)] for row in rows]
    return _table(about, ["", *figures], lines)


def _saturation(rows: Sequence[Measured]) -> str:
    about = (
        "How full a host gets: tasks come and never go, until they ask for 130 % of it, and one that has no place is "
        f"left out. The part of the GPUs that is taken, in % ({_seeds(rows)}). A `launch` here has one process:"
    )
    lines = [
        [f"**{rule}**" if rule.startswith(_OURS) else rule, *(_cell(row, rule, ".4g") for row in rows)]
        for rule in rows[0].values
    ]
    return _table(about, ["", *(f"{row.of['devices']} GPUs, {row.of['tasks']}" for row in rows)], lines)


def _passes(rows: Sequence[Measured]) -> str:
    about = (
        "The decision of one pass over the queue, CPU time in ms; each need has fifty earlier run times. On an idle "
        "host one pass gives all devices away; on a full one a pass comes while nothing has changed, and one after an "
        "end"
    )
    figures = ("idle host", "full host", "after an end", "longest")
    lines = [[_queue_of(row), *(_cell(row, one) for one in figures)] for row in rows]
    return _table(
        f"{about} ({_seeds(rows)}):", ["", "idle host", "nothing changed", "after an end", "the longest"], lines
    )


def _queue_of(row: Measured) -> str:
    of = row.of
    return f"{of['devices']} devices, {of['waiting']:,} waiting, limits: {of['limits']}, {of['needs']}"


def _history(rows: Sequence[Measured]) -> str:
    about = "CPU time of predictions, ms, by how many jobs have ended: at the daemon's start, and for each submission"
    lines = [[f"{row.of['ended']:,}", *(_cell(row, one, ".2g") for one in ("at the start", "each"))] for row in rows]
    return _table(f"{about} ({_seeds(rows)}):", ["", "at the start", "each"], lines)
