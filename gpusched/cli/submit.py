"""From what a person typed to a submission: all that a job needs to start at any later time, without this process."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gpusched.cli.command_options import CommandWish
from gpusched.cli.daemon_link import Link
from gpusched.cli.queue_options import GRACE_S, QueueWish
from gpusched.contract import outside_environment
from gpusched.engines.plan_options import PlanOptions, visible_here, xla_variable
from gpusched.errors import HostFault
from gpusched.linux.attributes import current_attributes
from gpusched.model.job import Network, ProcessIdentity, Submission
from gpusched.model.workload import Restart, Role, Workload
from gpusched.settings import Settings, places

__all__ = ["command_submission", "submit_detached", "workload_submission"]

_COMMANDS: Final = "run"
_ROLE: Final = "command"


def workload_submission(
    workload: Workload, options: bytes, wish: PlanOptions, queue: QueueWish, network: Network | None = None
) -> Submission:
    """Return the submission of a workload with its `options` (JSON), and its part in a `network`.

    Raises UsageError and HostFault.
    """
    from gpusched.planner import counted_role

    submission = Submission(
        workload=replace(workload, path=None),
        request=wish.request(workload),
        maximise=counted_role(workload) if wish.procs == "max" else None,
        options=options,
        policy=wish.policy,
        gpus=wish.gpus,
        exclude_gpus=wish.exclude_gpus,
        visible=wish.visible,
        machine=_from_anywhere(wish.machine),
        cwd=_here(),
        environ=_environment(),
        python=sys.executable,
        xla_variable=xla_variable(),
        network=network,
    )
    return _queued(submission, queue)


def command_submission(
    command: Sequence[str],
    wish: CommandWish,
    queue: QueueWish,
    launcher: ProcessIdentity | None,
    grace_s: float = GRACE_S,
) -> Submission:
    """Return the submission of one command. With a `launcher`, that process starts it, in its own environment.

    `grace_s` is how long its processes may take from SIGTERM to their end before they are killed.
    `python` is what `{python}` stands for in a workload's command: itself here, since a command is taken as it stands.
    Raises UsageError and HostFault.
    """
    need = wish.need()
    role = Role(name=_ROLE, command=tuple(command), restart=Restart(policy="never"))
    submission = Submission(
        workload=Workload(name=_COMMANDS, roles=(role,), leader=_ROLE, stop_grace_s=grace_s),
        command=need,
        gpus=wish.gpus,
        exclude_gpus=wish.exclude_gpus,
        visible=None if need.devices == 0 else visible_here(os.environ, wish.machine),
        machine=_from_anywhere(wish.machine),
        cwd=_here(),
        environ={} if launcher is not None else _environment(),
        python="{python}",
        xla_variable=xla_variable(),
        launcher=launcher,
    )
    return _queued(submission, queue)


def submit_detached(submission: Submission, settings: Settings, *, as_json: bool) -> str:
    """Put a job into the queue of the daemon, which is started if there is none; print its id, or it as JSON.

    Return the id.
    """
    with Link(settings, starts=True) as link:
        job = link.submit(submission)
    name = job.id
    if as_json:
        import msgspec

        _print_taken(msgspec.json.encode(job).decode(), name)
    else:
        _print_taken(name, name)
        print(f"  follow it: gpusched logs -f {name}   stop it: gpusched stop {name}", file=sys.stderr)
    if submission.visible is not None:
        print(f"gpusched: {submission.visible.variable}: no other device is taken", file=sys.stderr)
    return name


def _print_taken(text: str, name: str) -> None:
    """Print what tells of a job that is in the queue. Raises HostFault, with its id, where that cannot be written."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"{name} is in the queue, and its id cannot be written: {error.strerror}"
        raise HostFault(message, f"follow it: gpusched logs -f {name}; stop it: gpusched stop {name}") from None


def _queued(submission: Submission, queue: QueueWish) -> Submission:
    return replace(
        submission,
        attributes=current_attributes() if submission.launcher is None else None,
        name=queue.label(),
        priority=queue.priority,
        after=queue.after,
        after_any=queue.after_any,
        at=queue.moment(),
        time_limit_s=queue.limit_s(),
        hold=queue.hold,
        requeue=queue.requeue or submission.workload.requeue,
    )


def _here() -> str:
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


def _environment() -> dict[str, str]:
    """Return this process's environment for a process that may run later, and in another directory.

    What belongs to a job that this process is part of is left out, and what no message could hold: bytes that are no
    UTF-8.
    """
    whole = {}
    for name, value in (outside_environment(os.environ) | places(os.environ)).items():
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            print(f"gpusched: warning: the variable {name!a} is no UTF-8 and is left out", file=sys.stderr)
        else:
            whole[name] = value
    return whole
