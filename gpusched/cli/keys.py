"""`gpusched keys`: the keys by which other hosts join a job, for those who manage them by hand. Never a secret."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from gpusched.errors import NotFound, UsageError
from gpusched.settings import Settings, load_settings

if TYPE_CHECKING:
    from gpusched.joining.keys import Listed

__all__ = ["keys"]

Action = Literal["new", "list", "revoke"]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a job. `created` and `revoked` in Unix seconds; `file` is None once it is gone."""

    job: str
    name: str
    public: str
    created: float
    revoked: float | None
    file: str | None


def _complete_job(incomplete: str) -> list[str]:
    return [path.name for path in _all(load_settings(os.environ)) if path.name.startswith(incomplete)]


def keys(
    action: Annotated[
        Action,
        typer.Argument(
            help="new: make one more key. list: show those that were made. revoke: no host gets in with it any more."
        ),
    ],
    job: Annotated[
        str | None, typer.Argument(help="A job that listens, by id.", metavar="[JOB]", autocompletion=_complete_job)
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="Of new and revoke: what the key is called, such as its host.", metavar="[NAME]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; never a secret.")] = False,
) -> None:
    """Make, list and revoke the keys by which actors of other hosts join a job. A launch that listens makes one: join.

    Give each host a key of its own, and you can take each away again. A host that is in with a revoked key is cut off
    within seconds.

    Example: gpusched keys new snake-4 lab2
    """
    settings = load_settings(os.environ)
    if action == "list":
        if name is not None:
            raise UsageError("keys list takes no name", "such as: gpusched keys list snake-4")
        _list(settings, job, as_json=as_json)
        return
    if job is None or name is None:
        raise UsageError(
            f"keys {action}: of which job, and which name?", f"such as: gpusched keys {action} snake-4 lab2"
        )
    if action == "new":
        _new(settings, job, name, as_json=as_json)
    else:
        _revoke(settings, job, name, as_json=as_json)


def _new(settings: Settings, job: str, name: str, *, as_json: bool) -> None:
    from gpusched.joining.keys import new_key

    file = new_key(_directory(settings, job), name)
    if as_json:
        _print([row for row in _rows(file.parent) if row.name == name])
        return
    print(file)
    print("  who has this file can send batches to the job: copy it to one host, and keep it 0600", file=sys.stderr)


def _revoke(settings: Settings, job: str, name: str, *, as_json: bool) -> None:
    from gpusched.joining.keys import revoke

    directory = _directory(settings, job)
    revoke(directory, name)
    if as_json:
        _print([row for row in _rows(directory) if row.name == name])
    else:
        print(f"{job} lets no host in with the key {name} any more; one that is in with it is cut off within seconds")


def _list(settings: Settings, job: str | None, *, as_json: bool) -> None:
    jobs = [path.name for path in _all(settings)] if job is None else [job]
    rows = [row for each in jobs for row in _rows(_directory(settings, each))]
    if as_json:
        _print(rows)
        return
    if not rows:
        print("no job listens, and none has: gpusched launch WORKLOAD --listen tcp://0.0.0.0:5555")
        return
    lines = [("JOB", "NAME", "CREATED", "STATE", "FILE"), *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cells(row: _Row) -> tuple[str, ...]:
    state = "good" if row.revoked is None else f"revoked {_moment(row.revoked)}"
    return row.job, row.name, _moment(row.created), state, row.file or "-"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print(rows: Sequence[_Row]) -> None:
    print(msgspec.json.encode({"keys": rows}).decode())


def _rows(directory: Path) -> Iterator[_Row]:
    from gpusched.joining.keys import listed

    for key in listed(directory):
        yield _row(directory, key)


def _row(directory: Path, key: "Listed") -> _Row:
    file = directory / f"{key.name}.key"
    return _Row(
        job=directory.parent.name,
        name=key.name,
        public=key.public,
        created=key.created,
        revoked=key.revoked,
        file=str(file) if file.exists() else None,
    )


def _all(settings: Settings) -> list[Path]:
    """Return the directories of the jobs that have keys, those that came first before the others."""
    from gpusched.execution.hosts import KEYS
    from gpusched.joining.keys import SERVER

    found = (settings.state_dir / "jobs").glob(f"*/{KEYS}/{SERVER}")
    return [file.parent.parent for file in sorted(found, key=lambda file: file.stat().st_mtime)]


def _directory(settings: Settings, job: str) -> Path:
    """Return the directory of a job's keys. Raises NotFound, with what to do, for a job that has none."""
    from gpusched.execution.hosts import KEYS
    from gpusched.joining.keys import SERVER

    directory = settings.state_dir / "jobs" / job
    if "/" in job or job in ("", ".", "..") or not directory.is_dir():
        raise NotFound(f"there is no job {job}", "see `gpusched ps --all`, and `gpusched keys list`")
    if not (directory / KEYS / SERVER).exists():
        hint = "launch it with --listen tcp://0.0.0.0:5555; a job in the queue gets its keys when it starts"
        raise NotFound(f"{job} does not listen, or listens without keys", hint)
    return directory / KEYS
