"""`gpusched wait`: return when jobs have ended, with an exit code for how they ended."""

import re
from typing import Annotated

from gpusched.api.queue import as_completed
from gpusched.cli.options import Option
from gpusched.cli.selecting import Group, JobNames, Last, State, meant, nothing_meant
from gpusched.errors import JobFailed

__all__ = ["wait"]


def wait(
    jobs: JobNames = None,
    last: Last = False,
    state: State = None,
    group: Group = None,
    timeout: Annotated[
        str | None, Option("Give up after so long: 30s, 15m, 2h, or a number of seconds.", metavar="SPAN")
    ] = None,
    as_json: Annotated[bool, Option("Print the ended jobs as JSON.", ("--json",))] = False,
) -> None:
    """Wait until jobs have ended. Exit code 0: all succeeded; 1: one did not, or the time was up; 4: no such job.

    Example: gpusched wait snake-4 && gpusched plan
    """
    from gpusched.model.status import JobState
    from gpusched.render.job_format import end_line

    found = []
    ids = meant(jobs, last=last, state=state, group=group)
    if not ids and not as_json:
        print(nothing_meant(state, group))
    for job in as_completed(ids, None if timeout is None else _seconds(timeout)):
        found.append(job)
        if not as_json:
            print(end_line(job), flush=True)
    if as_json:
        from gpusched.cli.queue_answers import print_jobs

        print_jobs(found)
    if any(job.state is not JobState.SUCCEEDED for job in found):
        raise SystemExit(JobFailed.exit_code)


def _seconds(text: str) -> float:
    from gpusched.times import parse_seconds

    is_zero = re.fullmatch(r"0+(\.0*)?", text.strip()) is not None
    return 0.0 if is_zero else parse_seconds(text, "--timeout")
