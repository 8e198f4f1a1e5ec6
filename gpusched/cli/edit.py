"""`gpusched edit`: change queued jobs."""

from typing import Any, Final

from gpusched.cli.options import Options, argument, flag, with_options
from gpusched.cli.queue_options import QUEUE
from gpusched.cli.run import OTHER_AMOUNT

__all__ = ["edit"]

_CHANGED: Final = ("name", "group", "priority", "after", "after_any", "at", "time_limit", "idle_end", "notify")
_OPTIONS: Final[Options] = {
    "jobs": argument("Jobs by id or name, or globs: 'train*'.", "JOB...", QUEUE["after"].complete, list[str]),
    **{name: QUEUE[name] for name in _CHANGED},
    **OTHER_AMOUNT,
    "priority": QUEUE["priority"]._replace(kind=int | None, default=None),
    "as_json": flag("Print the jobs as JSON.", "--json"),
}


@with_options(_OPTIONS)
def edit(*, jobs: list[str], as_json: bool, **given: Any) -> None:
    """Change jobs that wait: their terms, and how much commands have of the devices.

    With "none", as in --time-limit none, a limit, a time, a name, a group, a notification or the jobs before it are
    taken away. Nothing is changed if one of the jobs no longer waits.

    Example: gpusched edit run-7 --priority 5 --memory 8GiB
    """
    from gpusched.api.editing import edit
    from gpusched.cli.queue_answers import print_change

    print_change(edit(jobs, **{name: value for name, value in given.items() if value is not None}), as_json=as_json)
