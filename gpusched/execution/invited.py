"""From a learner's invitation to the workload that this host runs for it: its own, if it is the same.

What comes over the network is the name, the settings and what to compare; never a command, and never a path.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpusched.errors import HostFault
from gpusched.execution.active_python import with_active_python
from gpusched.execution.network import require_open
from gpusched.execution.workload_options import Configured, configured_as
from gpusched.execution.workloads import load_named_workload, load_workload
from gpusched.joining.invitation import Invitation, differences, invitation
from gpusched.model.workload import Workload
from gpusched.planner import counted_role

__all__ = ["InvitedWorkload", "workload_for"]

_MOST_LISTED: Final = 5


class InvitedWorkload(NamedTuple):
    """What this host runs for a learner; `differences`: what is not as the learner has it, up to some of it."""

    configured: Configured
    differences: tuple[str, ...]


def workload_for(invited: Invitation, named: str | None, *, different: bool) -> InvitedWorkload:
    """Return the actors of this host's own workload of that name, or of the one `named`, under the learner's settings.

    Raises UsageError if it is not here or does not understand the settings, WorkloadError, and HostFault if code or
    versions are not the learner's, unless they may be `different`.
    """
    workload = load_workload(named) if named is not None else load_named_workload(invited.workload)
    ours = invitation(invited.job, workload.name, workload.path, invited.options.encode())
    found = _listed(differences(invited, ours))
    if found and not different:
        hint = "bring both hosts to the same code and versions, or go on at your own risk with --different"
        raise HostFault(f"this host does not have what the learner has: {'; '.join(found)}", hint)
    workload, options = configured_as(with_active_python(workload, os.environ).workload, invited.options)
    require_open(workload)
    return InvitedWorkload(Configured(_actors_of(workload), options), found)


def _listed(found: Sequence[str]) -> tuple[str, ...]:
    """Return what can be shown to a person; the names in it came over the network."""
    listed = ["".join(sign if sign.isprintable() else "?" for sign in one) for one in found[:_MOST_LISTED]]
    more = len(found) - _MOST_LISTED
    return (*listed, f"and {more} more") if more > 0 else tuple(listed)


def _actors_of(workload: Workload) -> Workload:
    """Return the workload with nothing but the role that --procs counts; it ends when its replicas do."""
    role = workload.role(counted_role(workload))
    return replace(workload, roles=(role,), leader=None, requeue=False)
