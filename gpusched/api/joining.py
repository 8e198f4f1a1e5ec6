"""Join a learner on another host: this host's own workload, under the learner's settings.

What comes over the network is the name, the settings and what to compare; never a command, and never a path.
"""

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

from msgspec.structs import replace

from gpusched.api.arguments import (
    Begins,
    JoinArguments,
    JoiningArguments,
    queue_fields,
    require_types,
    span_text,
    with_arguments,
)
from gpusched.api.launching import Launch
from gpusched.api.plan_arguments import plan_options, require_known
from gpusched.api.validation import require_type
from gpusched.errors import HostFault, UsageError
from gpusched.execution.active_python import with_active_python
from gpusched.execution.network import require_keys_or_loopback, require_open
from gpusched.execution.plan_options import visible_here
from gpusched.execution.workload_options import Configured, configured_as
from gpusched.execution.workloads import load_named_workload, load_workload
from gpusched.joining.invitation import Invitation, differences, invitation, request_join
from gpusched.model.job import Joining
from gpusched.model.workload import Workload
from gpusched.planner import counted_role
from gpusched.settings import Settings, load_settings, machine_typed

if TYPE_CHECKING:
    from gpusched.joining.keys import JoinKey

__all__ = ["prepare_join"]

_MOST_LISTED: Final = 5
_ANSWER_S: Final = 10.0
_LONGEST_HOST: Final = 32
_PATIENCE: Final = "15m"


@with_arguments(JoinArguments)
def prepare_join(endpoint: str, *, begins: Begins = "now", **given: Unpack[JoinArguments]) -> Launch:
    """Ask the learner at `endpoint`, and return what would run here for it. Nothing is taken and nothing runs.

    Raises UsageError, NotFound if no learner answers, ChannelError, and HostFault, too if code or versions are not the
    learner's.
    """
    from gpusched.execution.requirements import require_modules, require_programs
    from gpusched.execution.submission import workload_submission

    require_type(begins, Begins, "begins")
    require_known(given, JoinArguments)
    file, workload, patience_s = _checked(endpoint, given)
    queue, settings = queue_fields(given), load_settings(os.environ)
    machine = machine_typed(given.get("machine"))
    wish = plan_options(given)
    wish = wish._replace(procs=wish.procs or "max", machine=machine, visible=visible_here(os.environ, machine))
    key = _key(endpoint, file, insecure=given.get("insecure", False))
    invited = request_join(endpoint, key, _host_name(), _ANSWER_S)
    found = _workload_for(invited.invitation, workload, different=given.get("different", False))
    require_modules(found.configured.workload)
    require_programs(found.configured.workload)
    network = Joining(
        endpoint=endpoint,
        job=invited.invitation.job,
        host=invited.joined,
        first_rank=invited.first_rank,
        key=None if file is None else _kept(key, file, settings, begins),
        patience_s=patience_s,
    )
    job = workload_submission(found.configured.workload, found.configured.options, wish, network)
    notices = tuple(f"not as the learner has it: {one}" for one in found.differences)
    return Launch(job, settings, queue, notices, begins=begins)


class _Invited(NamedTuple):
    """What this host runs for a learner; `differences`: what is not as the learner has it, up to some of it."""

    configured: Configured
    differences: tuple[str, ...]


def _workload_for(invited: Invitation, named: str | None, *, different: bool) -> _Invited:
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
    return _Invited(Configured(_actors_of(workload), options), found)


def _listed(found: Sequence[str]) -> tuple[str, ...]:
    """Return what can be shown to a person; the names in it came over the network."""
    listed = ["".join(sign if sign.isprintable() else "?" for sign in one) for one in found[:_MOST_LISTED]]
    more = len(found) - _MOST_LISTED
    return (*listed, f"and {more} more") if more > 0 else tuple(listed)


def _actors_of(workload: Workload) -> Workload:
    """Return the workload with nothing but the role that --procs counts; it ends when its replicas do."""
    role = workload.role(counted_role(workload))
    return replace(workload, roles=(role,), leader=None, requeue=False)


def _checked(endpoint: str, given: JoinArguments) -> tuple[str | None, str | None, int]:
    """Return the key's file, the workload and the patience in seconds. Raises UsageError for a wrong type."""
    from gpusched.times import parse_seconds

    require_type(endpoint, str, "endpoint")
    if given.get("learner_memory") is not None:
        raise UsageError("learner_memory: the learner is on the other host", "leave it out")
    patience = span_text(given.get("patience"), "patience") or _PATIENCE
    require_types({**given, "patience": patience}, JoiningArguments)
    key, workload = (None if path is None else os.fspath(path) for path in (given.get("key"), given.get("workload")))
    return key, workload, max(1, round(parse_seconds(patience, "--patience")))


def _key(endpoint: str, file: str | None, *, insecure: bool) -> "JoinKey | None":
    """Return the key to ask with, None to ask without one. Raises UsageError, NotFound, HostFault."""
    from gpusched.joining.keys import read_join_key
    from gpusched.joining.tcp import Tcp

    to = Tcp.parse(endpoint, "join")
    if (file is None) != insecure:
        message = "--key and --insecure exclude each other" if insecure else f"{endpoint}: with which key?"
        raise UsageError(message, "give the key file of that job: --key FILE")
    require_keys_or_loopback(to, insecure=insecure)
    return None if file is None else read_join_key(Path(file), any_file=True)


def _kept(key: "JoinKey | None", file: str, settings: Settings, begins: Begins) -> str:
    """Return the key's file; for a job that begins later one of which the daemon will find a copy."""
    from gpusched.execution.network import keep_key

    return str(keep_key(settings.state_dir, key) if key is not None and begins == "later" else Path(file).absolute())


def _host_name() -> str:
    """Return what this host calls itself, in the letters that a learner takes."""
    short = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0]).lstrip("_-")
    return short[:_LONGEST_HOST] or "host"
