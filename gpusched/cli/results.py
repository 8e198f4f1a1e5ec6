"""`gpusched results`: what came of the members of a sweep."""

import sys
from typing import Final

from gpusched.cli.options import Options, flag, with_options
from gpusched.cli.selecting import Last, OneJob, the_one
from gpusched.errors import UsageError

__all__ = ["results"]

_OPTIONS: Final[Options] = {
    "as_csv": flag("Print CSV, with all numbers that were reported.", "--csv"),
    "as_json": flag("Print JSON.", "--json"),
}


@with_options(_OPTIONS)
def results(job: OneJob = None, last: Last = False, *, as_csv: bool, as_json: bool) -> None:
    """Show the parameters, the end and the last score of each member of a sweep, the best score first.

    Behind the table: the mean score by the values of each parameter. A score is what a member reports as `score`, see
    docs/sweeps.md.

    Example: gpusched results train-7 --csv
    """
    from gpusched.api.results import results

    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other", "give one of them")
    found = results(the_one(job, last=last))
    if as_json:
        import json

        members = [one._asdict() | {"parameters": dict(one.parameters), "report": dict(one.report)} for one in found]
        print(json.dumps({"array": found.job.id, "parameters": found.names, "members": members}))
    elif as_csv:
        print(found.csv(), end="")
    else:
        from gpusched.render.ansi import show
        from gpusched.render.results import draw_results

        show(lambda width: draw_results(found.members, found.names, width), sys.stdout)
