"""From what a person typed to a submission: all that a job needs to start at any later time, without this process."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from gpusched.environment import outside_environment
from gpusched.errors import HostFault, UsageError
from gpusched.execution.command_options import command_request
from gpusched.execution.plan_options import PlanOptions, visible_here, xla_variable
from gpusched.linux.attributes import current_attributes
from gpusched.model.job import ClusterJobRef, Network, ProcessIdentity, Submission
from gpusched.model.workload import Restart, Role, Workload
from gpusched.settings import places

__all__ = [
    "GRACE_S",
    "command_submission",
    "outer_environment",
    "queued",
    "unencodable",
    "working_directory",
    "workload_submission",
]

_COMMANDS: Final = "run"
_ROLE: Final = "command"

GRACE_S: Final = 10.0
"""What a command may take to end, where no other grace is given."""


def workload_submission(
    workload: Workload, options: bytes, wish: PlanOptions, network: Network | None = None
) -> Submission:
    """Return the submission of a workload with its `options` (JSON), and its part in a `network`.

    It is for this process to start: see `queued`, too. Raises UsageError and HostFault.
    """
    return replace(
        wish.submission(workload),
        options=options,
        cwd=working_directory(),
        python=sys.executable,
        xla_variable=xla_variable(),
        network=network,
    )


def command_submission(
    command: Sequence[str],
    given: Mapping[str, str],
    queue: Mapping[str, Any],
    launcher: ProcessIdentity | None = None,
    grace_s: float = GRACE_S,
) -> Submission:
    """Return the submission of one command, of what was typed of its devices (see command_request) and its machine.

    With a `launcher`, that process starts it, in its own environment. `queue` are the fields of the queue.

    `grace_s` is how long its processes may take from SIGTERM to their end before they are killed.
    `python` is what `{python}` stands for in a workload's command: itself here, since a command is taken as it stands.
    Raises UsageError and HostFault.
    """
    need, machine = command_request(given), given.get("machine")
    role = Role(name=_ROLE, command=tuple(command), restart=Restart(policy="never"))
    submission = Submission(
        workload=Workload(name=_COMMANDS, roles=(role,), leader=_ROLE, stop_grace_s=grace_s),
        command=need,
        gpus=given.get("gpus"),
        exclude_gpus=given.get("exclude_gpus"),
        ignore_foreign=given.get("ignore_foreign"),
        visible=None if need.devices == 0 else visible_here(os.environ, machine),
        machine=machine,
        cwd=working_directory(),
        environ={},
        python="{python}",
        xla_variable=xla_variable(),
        launcher=launcher,
    )
    return queued(submission, queue)


def queued(submission: Submission, queue: Mapping[str, Any]) -> Submission:
    """Return what the daemon's queue gets of it, with the fields of `queue`.

    A launcher starts it in its own environment; without one it has that of this process. No job waits for what it could
    have beyond its need while others wait for that: it grows only where that was asked for. Raises UsageError.
    """
    _require_watched(submission, queue)
    outlives = submission.launcher is None
    return replace(
        submission,
        workload=replace(submission.workload, path=None),
        machine=_from_anywhere(submission.machine),
        grow=bool(submission.grow),
        environ=outer_environment() if outlives else {},
        attributes=current_attributes() if outlives else None,
        **{"requeue": submission.workload.requeue, **queue},
    )


def _require_watched(submission: Submission, queue: Mapping[str, Any]) -> None:
    """Raise UsageError for a job that is to end when its devices do nothing, and has none that are watched."""
    if queue.get("idle_end_s") is None:
        return
    if submission.command is not None and submission.command.devices == 0:
        raise UsageError("--idle-end watches devices, and --num-gpus 0 is none", "leave one of them out")
    if submission.machine is not None or isinstance(submission.network, ClusterJobRef):
        where = "those of a cluster" if submission.machine is None else f"those of {submission.machine}"
        raise UsageError(f"--idle-end watches devices of this host, and not {where}", "take --time-limit instead")


def working_directory() -> str:
    """Return the directory that this process is in. Raises HostFault if it was removed."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise HostFault(f"the working directory: {error.strerror}", "change to one that exists") from None


def _from_anywhere(machine: str | None) -> str | None:
    """Return the machine as the daemon would find it: a file by its whole path, for it works elsewhere."""
    try:
        return str(Path(machine).absolute()) if machine is not None and Path(machine).is_file() else machine
    except OSError:  # too long for a name: no file
        return machine


def unencodable(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that no message can hold, as they are no UTF-8: a submission leaves them out."""
    return [name for name, value in environ.items() if not _is_utf8(name + value)]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def outer_environment() -> dict[str, str]:
    """Return this process's environment for a process that may run later, and in another directory.

    What belongs to a job that this process is part of is left out, and what is `unencodable`.
    """
    whole = outside_environment(os.environ) | places(os.environ)
    return {name: value for name, value in whole.items() if _is_utf8(name + value)}
