"""`gpusched rerun`: queue the same again."""

from typing import Any, Final

from gpusched.cli.options import Options, flag, with_options
from gpusched.cli.queue_options import QUEUE
from gpusched.cli.run import OTHER_AMOUNT
from gpusched.cli.selecting import Last, OneJob, the_one

__all__ = ["rerun"]

_OPTIONS: Final[Options] = {
    **OTHER_AMOUNT,
    **QUEUE,
    "priority": QUEUE["priority"]._replace(kind=int | None, default=None),
    "as_json": flag("Print the queued job as JSON.", "--json"),
}


@with_options(_OPTIONS)
def rerun(job: OneJob = None, last: Last = False, *, as_json: bool, **given: Any) -> None:
    """Queue a job's command or workload again: the same options, devices and directory, as a new job.

    A command may have another amount. Of a job that has ended no environment is kept: the new one has that of this
    shell.

    Example: gpusched rerun --last --memory 8GiB
    """
    from gpusched.api.editing import rerun
    from gpusched.cli.queue_answers import print_submitted

    chosen = {name: value for name, value in given.items() if value is not None and value is not False}
    print_submitted(rerun(the_one(job, last=last), **chosen), as_json=as_json)
