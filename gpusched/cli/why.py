"""`gpusched why`: why a job waits, when it is expected to start, and what would let it start now."""

import sys
import time
from typing import Annotated

from gpusched.api import queue
from gpusched.cli.options import Option
from gpusched.cli.selecting import Last, OneJob, the_one

__all__ = ["why"]


def why(
    job: OneJob = None,
    last: Last = False,
    as_json: Annotated[bool, Option("Print it as JSON.", ("--json",))] = False,
) -> None:
    """Show a waiting job's place, who is before it, when it is expected to start, and what would let it start now.

    Of a job that has ended it shows why it ended so.

    The daemon plays the queue on for that: how long jobs run is known by earlier ones of the same kind.

    Example: gpusched why run-7
    """
    found = queue.why(the_one(job, last=last))
    if as_json:
        import msgspec

        print(msgspec.json.encode(found).decode())
        return
    from gpusched.render.ansi import show
    from gpusched.render.why import draw_why

    show(lambda width: draw_why(found, time.time(), width), sys.stdout)
