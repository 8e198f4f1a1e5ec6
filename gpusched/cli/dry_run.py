"""`launch --dry-run`: what a launch would start, and where, without starting it."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby

from gpusched.api.planning import DryRun
from gpusched.render.text import printable

__all__ = ["show_dry_run"]


def show_dry_run(found: DryRun, *, as_json: bool) -> None:
    """Print the plan as `plan` does, and the command line of every replica."""
    if as_json:
        import msgspec

        report = found.plan.document() | {"starts_now": True, "commands": found.commands}
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    from gpusched.render.plan import show_plan

    show_plan(found.plan, sys.stdout)
    count = len(found.commands)
    print(f"\nwould start now: {count} process{'' if count == 1 else 'es'}")
    for line in _command_lines(found.commands):
        print(line)
    print("nothing has been started")


def _command_lines(commands: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield a line for each run of replicas with the same command: `  actor.0-31  python -m ...`."""
    by_command = groupby(commands.items(), key=lambda item: (item[0].rpartition(".")[0], item[1]))
    runs = [(argv, [name for name, _ in run]) for (_, argv), run in by_command]
    names = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1].rpartition('.')[2]}" for _, run in runs]
    width = max(map(len, names))
    for name, (argv, _) in zip(names, runs, strict=True):
        yield f"  {name:<{width}}  {printable(shlex.join(argv))}"
