"""`gpusched status`: the devices of this host, their users, and the jobs; for people, for programs, for a prompt."""

import sys
from typing import Annotated

from gpusched.api.host import StatusReader
from gpusched.cli.options import Option
from gpusched.errors import UsageError

__all__ = ["status"]


def status(
    as_json: Annotated[bool, Option("Print JSON; every field, null where it is unknown.", ("--json",))] = False,
    watch: Annotated[bool, Option("Keep it on the screen and up to date; q quits.", ("--watch", "-w"))] = False,
    in_one_line: Annotated[bool, Option("One line, for a shell prompt.", ("--oneline",))] = False,
    machine: Annotated[
        str | None,
        Option("Another machine than this host, or a saved status.", metavar="NAME|4x16GiB|FILE"),
    ] = None,
    interval: Annotated[float | None, Option("How often --watch reads again [default: 1].", metavar="SECONDS")] = None,
) -> None:
    """Show the devices, the memory that each job and each process uses of them, and the jobs.

    Example: gpusched status --json > saved.json; gpusched plan --machine saved.json
    """
    if as_json + watch + in_one_line > 1:
        raise UsageError("--json, --watch and --oneline exclude each other", "give one of them")
    if interval is not None and not watch:
        raise UsageError("--interval belongs to --watch", "add --watch, or leave it out")
    if interval is not None and not 0.1 <= interval <= 3600:  # noqa: PLR2004 (NaN fails this comparison too)
        raise UsageError(f"--interval: {interval} s is out of range", "give a number of seconds from 0.1 to 3600")
    read = StatusReader(machine)
    if as_json:
        import json

        print(json.dumps(read().document(), indent=2))
    elif in_one_line:
        from gpusched.render.oneline import oneline

        print(oneline(read(), unicode=_unicode()))
    elif watch:
        from gpusched.render.watch_status import watch_status

        watch_status(read, 1.0 if interval is None else interval, unicode=_unicode())
    else:
        from gpusched.render.status import print_status

        print_status(read(), unicode=_unicode())


def _unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
