"""From what a person typed to a submission: all that a job needs to start at any later time, without this process."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gpusched.cli.daemon_link import Link
from gpusched.cli.queue_options import QueueWish
from gpusched.engines.wish import Wish, xla_variable
from gpusched.errors import HostFault, UsageError
from gpusched.model.job import CommandNeed, Network, ProcessIdentity, Submission
from gpusched.model.workload import Restart, Role, Workload
from gpusched.settings import Settings
from gpusched.units import parse_count, parse_fraction, parse_mib

__all__ = ["command_need", "command_submission", "submit_detached", "workload_submission"]

_COMMANDS: Final = "run"
_ROLE: Final = "command"
_MOST_DEVICES: Final = 1024


def workload_submission(
    workload: Workload, options: bytes, wish: Wish, queue: QueueWish, network: Network | None = None
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
    need: CommandNeed,
    machine: str | None,
    queue: QueueWish,
    launcher: ProcessIdentity | None,
) -> Submission:
    """Return the submission of one command. With a `launcher`, that process starts it, in its own environment.

    `python` is what `{python}` stands for in a workload's command: itself here, since a command is taken as it stands.
    Raises UsageError and HostFault.
    """
    role = Role(name=_ROLE, command=tuple(command), restart=Restart(policy="never"))
    submission = Submission(
        workload=Workload(name=_COMMANDS, roles=(role,), leader=_ROLE),
        command=need,
        machine=_from_anywhere(machine),
        cwd=_here(),
        environ={} if launcher is not None else _environment(),
        python="{python}",
        xla_variable=xla_variable(),
        launcher=launcher,
    )
    return _queued(submission, queue)


def command_need(gpus: str | None, memory: str | None, fraction: str | None) -> CommandNeed:
    """Return what a command asks for: one whole device unless something else was typed. Raises UsageError."""
    given = [
        name for name, value in (("--gpus", gpus), ("--memory", memory), ("--fraction", fraction)) if value is not None
    ]
    if len(given) > 1:
        hint = "give one: --gpus for whole devices, or --memory or --fraction for a part of one"
        raise UsageError(f"{' and '.join(given)} exclude each other", hint)
    if memory is not None:
        return CommandNeed(memory_mib=parse_mib(memory, "--memory"))
    if fraction is not None:
        return CommandNeed(fraction=_fraction(fraction))
    return CommandNeed(devices=1 if gpus is None else _devices(gpus))


def submit_detached(submission: Submission, settings: Settings, *, as_json: bool) -> str:
    """Put a job into the queue of the daemon, which is started if there is none; print its id, or it as JSON.

    Return the id.
    """
    with Link(settings, starts=True) as link:
        name = link.submit(submission)
        if as_json:
            import msgspec

            print(msgspec.json.encode(link.job(name)).decode())
            return name
    print(name)
    print(f"  follow it: gpusched logs -f {name}   stop it: gpusched stop {name}", file=sys.stderr)
    return name


def _queued(submission: Submission, queue: QueueWish) -> Submission:
    return replace(
        submission,
        name=queue.label(),
        priority=queue.priority,
        after=queue.after,
        at=queue.moment(),
        time_limit_s=queue.limit_s(),
        hold=queue.hold,
        requeue=queue.requeue or submission.workload.requeue,
    )


def _devices(text: str) -> int:
    hint = f"--gpus is a number of whole devices, from 0 to {_MOST_DEVICES}"
    try:
        number = parse_count(text, "--gpus")
    except UsageError as error:
        raise UsageError(error.message, hint) from None
    if number > _MOST_DEVICES:
        raise UsageError(f"--gpus: {text!r} is too many", hint)
    return number


def _fraction(text: str) -> int:
    try:
        return parse_fraction(float(text), "--fraction")
    except (ValueError, UsageError):
        hint = "give a number above 0 and at most 1, such as 0.4"
        raise UsageError(f"--fraction: {text!r} is not a fraction", hint) from None


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
    """Return this process's environment, less what no message could hold: bytes that are no UTF-8."""
    whole = {}
    for name, value in os.environ.items():
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            print(f"gpusched: warning: the variable {name!a} is no UTF-8 and is left out", file=sys.stderr)
        else:
            whole[name] = value
    return whole
