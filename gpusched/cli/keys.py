"""`gpusched keys`: the keys by which other hosts join a job, for those who manage them by hand. Never a secret."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpusched.errors import UsageError

if TYPE_CHECKING:  # help needs none of it
    from gpusched.api.keys import Key

__all__ = ["keys"]

Action = Literal["new", "list", "revoke"]


def _job_ids(incomplete: str) -> list[str]:
    from gpusched.api.keys import job_ids

    return job_ids(incomplete)


def keys(
    action: Annotated[
        Action,
        typer.Argument(
            help="new: make one more key. list: show those that were made. revoke: no host gets in with it any more."
        ),
    ],
    job: Annotated[
        str | None, typer.Argument(help="A job that listens, by id.", metavar="[JOB]", autocompletion=_job_ids)
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
    from gpusched.api import keys as api

    if action == "list":
        if name is not None:
            raise UsageError("keys list takes no name", "such as: gpusched keys list snake-4")
        _print_table(api.list_keys(job), as_json=as_json)
        return
    if job is None or name is None:
        raise UsageError(
            f"keys {action}: of which job, and which name?", f"such as: gpusched keys {action} snake-4 lab2"
        )
    key = api.create(job, name) if action == "new" else api.revoke(job, name)
    if as_json:
        _print([key])
    elif action == "new":
        print(key.file)
        print("  who has this file can send batches to the job: copy it to one host, and keep it 0600", file=sys.stderr)
    else:
        print(f"{job} lets no host in with the key {name} any more; one that is in with it is cut off within seconds")


def _print_table(keys: "Sequence[Key]", *, as_json: bool) -> None:
    if as_json:
        _print(keys)
        return
    if not keys:
        print("no job listens, and none has: gpusched launch WORKLOAD --listen tcp://0.0.0.0:5555")
        return
    lines = [("JOB", "NAME", "CREATED", "STATE", "FILE"), *map(_cells, keys)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cells(key: "Key") -> tuple[str, ...]:
    state = "good" if key.revoked is None else f"revoked {_moment(key.revoked)}"
    return key.job, key.name, _moment(key.created), state, key.file or "-"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print(keys: "Sequence[Key]") -> None:
    import msgspec

    print(msgspec.json.encode({"keys": keys}).decode())
