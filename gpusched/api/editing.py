"""Jobs of the queue changed, and queued again. See gpusched.api.queue for `ids` and `settings`."""

import os
from typing import Final, Unpack

from gpusched.api.arguments import ChangeArguments, queue_change, with_arguments
from gpusched.api.plan_arguments import require_known
from gpusched.api.queue import Change, Submitted
from gpusched.api.selecting import linked, only, selected, waiting
from gpusched.api.validation import SomeJobs, require_ids, require_one
from gpusched.control.messages import Done, Edit, Rerun
from gpusched.errors import UsageError
from gpusched.execution.submission import outer_environment, unencodable
from gpusched.linux.attributes import current_attributes
from gpusched.model.job import QueueChange
from gpusched.settings import Settings, load_settings, queue_settings

__all__ = ["edit", "rerun"]

_MOST_AT_ONCE: Final = 10_000
_SEVERAL: Final = 2


@with_arguments(ChangeArguments)
def edit(ids: SomeJobs, *, settings: Settings | None = None, **given: Unpack[ChangeArguments]) -> Change:
    """Change queued jobs: `priority`, `time_limit`, `after`, `at`, `name`, `group`, `notify` and so on.

    Of commands also how much they have: `num_gpus`, `memory` or `fraction`. "none" takes a time limit, a moment, a
    name, a group, a `notify` or the jobs before it away. Nothing is changed if one of the jobs cannot be: it is no
    longer queued, would wait for itself, or could never fit. Raises UsageError and NeverFits.

    Example: editing.edit("train*", priority=5)
    """
    names = require_ids(ids, "ids")
    require_known(given, ChangeArguments)
    if "hold" in given:
        raise UsageError("there is nothing to change", "use hold and release")
    change = queue_change(given)
    if not names or change == QueueChange():
        raise UsageError("there is nothing to change", "name jobs and what to change")
    with linked(settings or queue_settings(os.environ), names) as link:
        found = waiting(link, names)
        if len(found) > _MOST_AT_ONCE:  # all or none, in one message
            raise UsageError(f"{len(found)} jobs are too many to be changed at once", f"at most {_MOST_AT_ONCE}")
        return Change(link.ask(Edit(ids=found, change=change), Done).report, link.jobs(found))


@with_arguments(ChangeArguments)
def rerun(job: SomeJobs, *, settings: Settings | None = None, **given: Unpack[ChangeArguments]) -> Submitted:
    """Queue the same again: the command or workload of a job, its options, devices and directory, as a new job.

    A command may have another amount: `num_gpus`, `memory` or `fraction`.

    Of a job that lives it has the environment, too; of one that has ended that of this process, as no environment is
    kept. It waits for no other job and no moment unless that is given. Raises UsageError for several jobs, and for one
    that was launched in the foreground; and what submit raises.

    Example: editing.rerun("train", priority=5)
    """
    require_known(given, ChangeArguments)
    name, change = require_one(job, "job"), queue_change(given)
    with linked(settings or load_settings(os.environ), (name,)) as link:
        again = Rerun(
            id=only(name, selected(link, (name,), _SEVERAL)),
            change=change,
            environ=outer_environment(),
            attributes=current_attributes(),
        )
        return Submitted(link.again(again), tuple(unencodable(os.environ)))
