"""What jobs really used, beside what they were given."""

import os
from collections.abc import Iterator
from typing import Final

from gpusched.api.selecting import Since, linked, moment_of, selected
from gpusched.api.validation import SomeJobs, require_ids
from gpusched.errors import UsageError
from gpusched.execution.daemon_link import in_parts
from gpusched.execution.listing import has_jobs
from gpusched.model.selection import MOST_ENDED_SELECTED
from gpusched.model.usage import RoleUsage
from gpusched.settings import Settings, queue_settings

__all__ = ["UsageReport", "usage"]

_LATELY: Final = "7d"


class UsageReport:
    """The usage of jobs, a row for each of their roles, the latest first. It prints as a table.

    `named`: the table has a line for each row; else one for all jobs of the same command, the most waste first.
    """

    def __init__(self, rows: tuple[RoleUsage, ...], *, named: bool) -> None:
        self.rows: Final = rows
        self.named: Final = named

    def __iter__(self) -> Iterator[RoleUsage]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        from gpusched.render.ansi import plain
        from gpusched.render.usage import draw_usage

        return plain(lambda width: draw_usage(self.rows, width, named=self.named))

    def _repr_html_(self) -> str:
        from gpusched.render.usage import usage_html

        return usage_html(self.rows, named=self.named)


def usage(jobs: SomeJobs | None = None, *, since: Since | None = None, settings: Settings | None = None) -> UsageReport:
    """Return what jobs used: the named ones, or those that run or ended `since` then, a week ago where none is given.

    An array stands for its members. Figures of those that run are a minute old at most. Raises NotFound for what
    means no job, UsageError (also for an empty list), NoDaemon and HostFault.
    """
    names, settings = () if jobs is None else require_ids(jobs, "jobs"), settings or queue_settings(os.environ)
    if jobs is not None and not names:
        raise UsageError("no job is named", "name one or more, or leave jobs out for those of the last week")
    moment = 0.0 if names and since is None else moment_of(_LATELY if since is None else since, "since")
    if not names and not has_jobs(settings):
        return UsageReport((), named=False)
    from gpusched.control.usage_messages import ListUsage, Usages

    with linked(settings, names) as link:
        ids = selected(link, names, MOST_ENDED_SELECTED) if names else ()
        parts = [()] if not names else in_parts(ids)
        rows = [row for part in parts for row in link.ask(ListUsage(ids=part, since=moment), Usages).rows]
    return UsageReport(tuple(rows), named=bool(names))
