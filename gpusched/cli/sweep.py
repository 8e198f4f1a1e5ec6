"""`gpusched sweep`: a command or a workload, many times, with other values of its parameters."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gpusched.api.catalog import workload_names
from gpusched.cli.options import Option, Options, flag, with_options
from gpusched.cli.planning import PLAN
from gpusched.cli.queue_options import DETACH, QUEUE
from gpusched.cli.run import COMMAND, PROGRAM, variables
from gpusched.errors import GpuschedError, JobFailed, UsageError

__all__ = ["sweep"]

_TWO_NUMBERS: Final = 2
_MOST_LISTED: Final = 1_000_000
_OPTIONS: Final[Options] = {
    "what": Option(
        "A workload's name, or behind -- a command and its arguments, with {lr} where a value goes.",
        metavar="WORKLOAD | -- COMMAND...",
        argument=True,
        complete=workload_names,
        kind=list[str] | None,
    ),
    "param": Option(
        "The values of a parameter: lr=1e-3,1e-4 or seed=0..9. Of several, all combinations run.",
        metavar="NAME=VALUES",
        kind=list[str] | None,
    ),
    "rows": Option("A CSV file with the names in its first line, and a line for each member.", ("--from",), "FILE"),
    "array": Option("Numbers of members without parameters: 1-100. {index} is the number.", metavar="FIRST-LAST"),
    "at_most": Option(
        "How many may run at the same time. [default: all that fit]", metavar="N", least=1, kind=int | None
    ),
    "preload": Option(
        "A module, such as tensorflow, that is imported once for all members of a Python command.",
        metavar="MODULE",
        kind=list[str] | None,
    ),
    "resume": Option("Run those members of this sweep that failed, or never began.", metavar="ARRAY"),
    **COMMAND,
    **PROGRAM,
    **{name: PLAN[name] for name in ("procs", "learner_memory", "actor_memory", "policy", "grow")},
    **QUEUE,
    **DETACH,
    "as_json": flag("With -d: print the queued sweep as JSON.", "--json"),
}


@with_options(_OPTIONS)
def sweep(
    *,
    what: list[str] | None,
    param: list[str] | None,
    rows: str | None,
    array: str | None,
    resume: str | None,
    detach: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Queue a command or a workload once for each combination of the values of its parameters.

    The members of a sweep have one id, such as train-7, and are called train-7[0] and so on. They start as places
    become free: none waits for another to end. Ctrl-C ends the view; the sweep goes on.

    Example: gpusched sweep --param lr=1e-3,1e-4 --param seed=0..9 -- python train.py --lr {lr} --seed {seed}
    """
    if as_json and not detach:
        raise UsageError("--json belongs to a sweep in the background", "add -d, or leave it out")
    from gpusched.cli.queue_answers import print_submitted

    if resume is not None:
        others = [what, param, rows, array, *given.values()]
        if any(one not in (None, False, 0, [], ()) for one in others):
            raise UsageError("--resume is for a sweep as it is", "leave the rest out, but for -d and --json")
        from gpusched.api.sweeping import resume as resumed

        submitted = resumed(resume)
    else:
        submitted = _submitted(what or [], _parameters(param, rows, array), given)
    name = submitted.job.id
    with _goes_on(name, KeyboardInterrupt):
        print_submitted(submitted, as_json=as_json)
        if not detach:
            with _goes_on(name, GpuschedError):
                _follow(name)


@contextmanager
def _goes_on(name: str, kind: type[BaseException]) -> Iterator[None]:
    """Print, where such an error ends the view, that the sweep goes on."""
    try:
        yield
    except kind:
        print(f"\n{name} goes on; see it: gpusched ps {name}   stop it: gpusched stop {name}", file=sys.stderr)
        raise


def _submitted(what: Sequence[str], chosen: Mapping[str, Any], given: dict[str, Any]) -> Any:
    from gpusched.api.queue import submit
    from gpusched.api.sweeping import prepare_sweep

    if not what:
        raise UsageError("nothing to run is named", "name a workload, or a command behind --")
    given |= {"env": variables(given["env"] or ()) or None, "preload": given["preload"] or ()}
    is_workload = len(what) == 1 and (what[0] in workload_names() or what[0].endswith(".toml"))
    return submit(prepare_sweep(what[0] if is_workload else list(what), **chosen, **given))


def _parameters(param: Sequence[str] | None, rows: str | None, array: str | None) -> dict[str, Any]:
    """Return the arguments of the API for what is typed of --param, --from and --array. Raises UsageError."""
    if sum(one is not None for one in (param or None, rows, array)) != 1:
        raise UsageError("a sweep needs parameters or numbers of members", "give one of --param, --from and --array")
    if array is not None:
        return {"array": _numbers(array)}
    if rows is not None:
        return {"parameters": _rows(rows)}
    found: dict[str, Any] = {}
    for one in param or ():
        name, equals, values = one.partition("=")
        if not equals or not values or name in found:
            problem = "is given twice" if name in found else "has no values"
            raise UsageError(f"--param {one}: {name!r} {problem}", "give each once, as in lr=1e-3,1e-4 or seed=0..9")
        found[name] = _values(values)
    return {"parameters": found}


def _values(text: str) -> Sequence[object]:
    """Return the values between commas; 0..9 are the whole numbers from 0 to 9."""
    parts = [_range(value.strip()) for value in text.split(",")]
    if len(parts) == 1:
        return parts[0]
    count = sum(part.stop - part.start if isinstance(part, range) else 1 for part in parts)
    if count > _MOST_LISTED:
        raise UsageError(f"{text}: {count:,} values", f"give at most {_MOST_LISTED:,}, or one range")
    return [str(value) for part in parts for value in part]


def _range(text: str) -> Sequence[object]:
    first, dots, last = text.partition("..")
    if not (dots and _is_whole(first) and _is_whole(last)):
        return [text]
    if int(first) > int(last):
        raise UsageError(f"{text}: the first number is above the last", f"give {last}..{first}")
    return range(int(first), int(last) + 1)


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _numbers(text: str) -> range:
    parts = text.split("-")
    if len(parts) != _TWO_NUMBERS or not all(map(_is_whole, parts)) or int(parts[0]) > int(parts[1]):
        raise UsageError(f"--array {text}: these are no numbers of members", "give the first and the last: 1-100")
    return range(int(parts[0]), int(parts[1]) + 1)


def _rows(path: str) -> list[dict[str, str]]:
    import csv

    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # noqa: PTH123
            found = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--from {path}: {why}", "name a CSV file with a header") from None
    for number, row in enumerate(found, 1):
        if None in row or None in row.values():
            raise UsageError(f"--from {path}: row {number} has not as many cells as the header", "mend it")
    if not 0 < len(found) <= _MOST_LISTED:
        raise UsageError(f"--from {path}: {len(found):,} rows", f"give 1 to {_MOST_LISTED:,}, behind a header")
    return found


def _follow(name: str) -> None:
    """Show how far the sweep is until it has ended: one line that changes in a terminal, else the end alone."""
    from gpusched.api.functions import job
    from gpusched.model.status import JobState
    from gpusched.render.ansi import is_plain, replace_line
    from gpusched.render.job_format import array_text, end_line
    from gpusched.render.text import printable

    live, status, shown = not is_plain(sys.stderr), None, ""
    for status in job(name).watch(0.5):
        if live and status.array is not None:
            doing = f", {printable(status.note)}" if status.note else ""
            before, shown = shown, f"{name}  {array_text(status.array)}{doing}"
            if shown != before:
                replace_line(shown, sys.stderr)
    if live:
        replace_line("", sys.stderr)
    if status is not None:
        print(f"{end_line(status)}; see: gpusched results {name}", file=sys.stderr)
        if status.state is not JobState.SUCCEEDED:
            raise SystemExit(JobFailed.exit_code)
        if status.message:
            print(printable(status.message), file=sys.stderr)
