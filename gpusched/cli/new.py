"""`gpusched new`: write a small workload that runs, for a person to make it their own."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated

import typer

__all__ = ["new"]


def new(
    name: Annotated[
        str, typer.Argument(help="What it is to be called: lower-case letters, digits and _.", metavar="NAME")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a workload of your own into ./workloads/NAME, as an example that runs at once and needs NumPy only.

    A learner and two actors find out which arm of a bandit pays most, within seconds. Comments show where your model
    and environment go. Nothing that is there is overwritten.

    Example: gpusched new mine
    """
    from gpusched.api import catalog

    folder, files = catalog.new(name)
    steps = {f"gpusched launch {name}": "learns for a few seconds", f"pytest {folder}": "tests that it does"}
    if as_json:
        import json

        print(json.dumps({"folder": str(folder.absolute()), "files": list(files), "next": list(steps)}))
        return
    print(f"{name} is a workload that runs; make it your own:")
    _print_columns({str(folder / file): what for file, what in files.items()})
    print("next, in this directory:")
    _print_columns(steps)
    if find_spec("pytest") is None:
        print("pytest is not installed here: pip install pytest")


def _print_columns(rows: Mapping[str, str]) -> None:
    width = max(map(len, rows))
    for first, second in rows.items():
        print(f"  {first:<{width}}  {second}")
