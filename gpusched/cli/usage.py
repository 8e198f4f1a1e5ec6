"""`gpusched usage`: what jobs really used, beside what they were given."""

import sys
from typing import Annotated

from gpusched.cli.options import Option
from gpusched.cli.selecting import JobNames, Last, meant

__all__ = ["usage"]


def usage(
    jobs: JobNames = None,
    last: Last = False,
    since: Annotated[
        str | None, Option("Only jobs that run or ended since then: 2h, 30d. [default: 7d]", metavar="WHEN")
    ] = None,
    as_json: Annotated[bool, Option("Print JSON, a row for each role of each job.", ("--json",))] = False,
) -> None:
    """Show what jobs used of their GPUs' memory, of the host's, and of its CPUs, beside what they were given.

    Without a JOB, in one line for all runs of the same command, those first that left the most memory unused. GIVEN and
    USED are those of the run that used most of its share, OF IT is that part. NEEDED is what the program itself had
    allocated, by its framework; BUSY the part of the time in which its kernels ran; ENERGY that of its GPUs (~: its
    part of a GPU that others used as well, by the time in which kernels ran); CPUS how many it kept busy.

    Example: gpusched usage; gpusched usage train-7
    """
    from gpusched.api.usage import usage

    found = usage(meant(jobs, last=last, state=None) if jobs or last else None, since=since)
    if as_json:
        from msgspec.json import encode
        from msgspec.structs import asdict

        print(encode({"usage": [asdict(row) | {"used_part": row.used_part} for row in found]}).decode())
    else:
        from gpusched.render.ansi import show
        from gpusched.render.usage import draw_usage

        show(lambda width: draw_usage(found.rows, width, named=found.named), sys.stdout)
