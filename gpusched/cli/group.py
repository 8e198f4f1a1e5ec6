"""`gpusched group`: groups of jobs, how many of one may run at the same time, and whether any starts."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpusched.api import groups
from gpusched.errors import UsageError
from gpusched.render.text import printable

if TYPE_CHECKING:
    from gpusched.api.groups import Group

__all__ = ["group"]


def group(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A group. [default: list all]", show_default=False, autocompletion=groups.group_names
        ),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option("--at-most", metavar="N|none", help="How many of its jobs may run at once; none takes that away."),
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="No job of it starts; those that run go on.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Let its jobs start again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the groups as JSON.")] = False,
) -> None:
    """List the groups that jobs are in by --group, or show, limit, pause or resume one, with jobs or before it has any.

    A lower limit, or a pause, ends no job: gpusched stop --group NAME does.

    Example: gpusched group sweeps --at-most 2
    """
    if pause and resume:
        raise UsageError("--pause and --resume exclude each other", "give one of them")
    changes = at_most is not None or pause or resume
    if name is None:
        if changes:
            raise UsageError("no group is named", "such as: gpusched group sweeps --at-most 2")
        _print(groups.find_groups(), as_json=as_json)
        return
    if not changes:
        _print((groups.find_group(name),), as_json=as_json)
        return
    found = groups.change_group(name, at_most=at_most, paused=pause if pause or resume else None)
    _print((found,), as_json=as_json)
    if not as_json and found.running > (0 if found.paused else found.at_most or found.running):
        jobs = "1 job of it goes" if found.running == 1 else f"{found.running} jobs of it go"
        print(printable(f"  {jobs} on; to end: gpusched stop --group {shlex.quote(name)}"), file=sys.stderr)


def _print(found: "Sequence[Group]", *, as_json: bool) -> None:
    if as_json:
        import msgspec

        print(msgspec.json.encode({"groups": found}).decode())
        return
    if not found:
        print("there is no group: gpusched run -d --group NAME -- COMMAND")
        return
    from gpusched.render.ansi import show
    from gpusched.render.groups import draw_groups

    show(lambda _: draw_groups(found), sys.stdout)
