"""From a learner's invitation to the workload that this host runs for it: its own, if it is the same.

What comes over the network is the name, the settings and what to compare; never a command, and never a path.
"""

import os
import sys
from typing import Final

from msgspec.structs import replace

from gpusched.errors import HostFault
from gpusched.execution.active_python import with_active_python
from gpusched.execution.network import require_open
from gpusched.execution.workload_options import Configured, configured_as
from gpusched.execution.workloads import load_named_workload, load_workload
from gpusched.joining.invitation import Invitation, differences, invitation
from gpusched.model.workload import Workload
from gpusched.planner import counted_role
from gpusched.render.text import printable

__all__ = ["workload_for"]

_MOST_LISTED: Final = 5


def workload_for(invited: Invitation, named: str | None, *, different: bool) -> Configured:
    """Return the actors of this host's own workload of that name, or of the one `named`, under the learner's settings.

    Raises UsageError if it is not here or does not understand the settings, WorkloadError, and HostFault if code or
    versions are not the learner's; `different` only warns of that.
    """
    workload = load_workload(named) if named is not None else load_named_workload(invited.workload)
    found = differences(invited, invitation(invited.job, workload.name, workload.path, invited.options.encode()))
    if found:
        _report(found, different=different)
    workload, options = configured_as(with_active_python(workload, os.environ).workload, invited.options)
    require_open(workload)
    return Configured(_actors_of(workload), options)


def _report(found: list[str], *, different: bool) -> None:
    listed = [printable(one) for one in found[:_MOST_LISTED]]
    if len(found) > _MOST_LISTED:
        listed.append(f"and {len(found) - _MOST_LISTED} more")
    if not different:
        hint = "bring both hosts to the same code and versions, or go on at your own risk with --different"
        raise HostFault(f"this host does not have what the learner has: {'; '.join(listed)}", hint)
    for one in listed:
        print(f"gpusched: warning: not as the learner has it: {one}", file=sys.stderr)


def _actors_of(workload: Workload) -> Workload:
    """Return the workload with nothing but the role that --procs counts; it ends when its replicas do."""
    role = workload.role(counted_role(workload))
    return replace(workload, roles=(role,), leader=None, requeue=False)
