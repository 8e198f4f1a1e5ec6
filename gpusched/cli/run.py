"""`gpusched run`: any command under the leases, the limits and the queue, as if it stood there without us."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from gpusched.cli.options import Option, Options, argument, flag, with_options
from gpusched.cli.planning import PLAN
from gpusched.cli.queue_options import DETACH, QUEUE
from gpusched.errors import UsageError
from gpusched.model.status import JobStatus
from gpusched.render.text import printable

__all__ = ["COMMAND", "OTHER_AMOUNT", "PROGRAM", "run", "variables"]

_AMOUNT: Final[Options] = {
    "num_gpus": Option(
        "How many whole devices, which it sees as 0, 1, ...; 0 for none. [default: 1; with --gpus all of these]",
        metavar="N",
    ),
    "memory": Option(
        "How much memory of one device it may use, such as 6GiB. auto: what earlier runs needed; "
        "auto:6GiB: until three are known, 6 GiB.",
        metavar="AMOUNT",
    ),
    "fraction": Option("A part of one device, such as 0.4: two of 0.5 fit on one.", metavar="PART"),
}
"""The API's AmountArguments."""

OTHER_AMOUNT: Final[Options] = {
    **_AMOUNT,
    "num_gpus": _AMOUNT["num_gpus"]._replace(help="How many whole devices, in the place of what it has; 0 for none."),
}
"""The same of what is queued."""

COMMAND: Final[Options] = {
    **_AMOUNT,
    "processes": Option(
        "How many of its processes use a device at once: each has an equal part of the limit. [default: 1]",
        metavar="N",
    ),
    "gpus": Option(
        "Which devices: indices (0,2), MIG instances (0:2) or starts of uuids. With nothing else all of them, whole.",
        metavar="LIST",
    ),
    "exclude_gpus": PLAN["exclude_gpus"],
    "ignore_foreign": PLAN["ignore_foreign"],
    "machine": Option(
        "A machine that is not here, whose devices are simulated; here: this host. [default: default_machine of the "
        "configuration, else here]",
        metavar="NAME|4x16GiB|FILE",
    ),
    "grace": Option(
        "How long it may save its work once it is asked to end, such as 30 (seconds), 90s or 5m. [default: 10s]",
        metavar="SPAN",
    ),
}
"""Devices, and its end: the API's CommandArguments."""

PROGRAM: Final[Options] = {
    "env": Option("A variable for it; may be given several times.", metavar="NAME=VALUE", kind=list[str] | None),
    "cwd": Option("The directory that it runs in. [default: this one]", metavar="DIR"),
    "retry": Option(
        "With -d: start it again so often after it failed.", metavar="N", least=0, most=1000, kind=int | None
    ),
}
"""How it runs: the API's ProgramArguments."""

_OPTIONS: Final[Options] = {
    "command": argument(
        "A program and its arguments; -- before it if it needs.", "COMMAND...", kind=list[str], is_command=True
    ),
    **COMMAND,
    **PROGRAM,
    **QUEUE,
    **DETACH,
    "as_json": flag("With -d: print the queued job as JSON.", "--json"),
}


@with_options(_OPTIONS)
def run(*, command: list[str], detach: bool, as_json: bool, **given: Any) -> None:
    """Run a command on GPUs that no other job gets meanwhile; wait in the queue until they are free.

    Its input, output, signals and exit code are those of the command. Ctrl-C while it waits takes it out of the queue.

    Example: gpusched run --fraction 0.4 -- python train.py --epochs 3
    """
    given["env"] = variables(given["env"] or ())
    if as_json and not detach:
        raise UsageError("--json belongs to a command in the background", "add -d, or leave it out")
    if detach:
        import os

        from gpusched.api.commands import command_submission
        from gpusched.cli.queue_answers import submit_detached
        from gpusched.settings import load_settings

        settings = load_settings(os.environ)
        submit_detached(command_submission(command, given, settings), settings, as_json=as_json)
        return
    from gpusched.api import attached

    end = attached.run(command, _Notice().show, _warn, **given)
    if end.job is not None:
        _report_end(end.job)
    raise SystemExit(end.code)


def variables(typed: Sequence[str]) -> dict[str, str]:
    """Return the variables that are typed as NAME=VALUE. Raises UsageError."""
    for one in typed:
        if "=" not in one:
            raise UsageError(f"--env: {one!r} has no value", "give NAME=VALUE")
    return {name: value for name, _, value in (one.partition("=") for one in typed)}


def _warn(text: str) -> None:
    print(f"gpusched: warning: {printable(text)}", file=sys.stderr)


def _waiting(job: JobStatus) -> str:
    if job.held:
        return f"{job.id} is held; let it go with: gpusched release {job.id}"
    return f"{job.id} waits: {job.why}" if job.why else f"{job.id} waits for its turn"


def _report_end(job: JobStatus) -> None:
    """Print on stderr what the exit code does not show: who ended the command, or why it did not start."""
    end = job.replicas[0].exit
    if end is not None and end.kind == "spawn-failed":
        print(f"gpusched: {printable(end.message or '')}", file=sys.stderr)
    elif job.message and (end is None or end.kind not in ("completed", "crashed", "signalled")):
        print(f"gpusched: {job.id}: {printable(job.message)}", file=sys.stderr)


class _Notice:
    """One line on stderr: always the latest one in a terminal, only the first one elsewhere."""

    def __init__(self) -> None:
        from gpusched.render.ansi import is_plain

        self._live = not is_plain(sys.stderr)
        self._shown = ""

    def show(self, job: JobStatus | None) -> None:
        """Show why the job waits; None takes the line away."""
        from gpusched.render.ansi import replace_line

        line = "" if job is None else printable(_waiting(job))
        with suppress(OSError):  # a full disk under stderr is no reason to lose one's place
            if self._live and line != self._shown:
                replace_line(line, sys.stderr)
            elif line and not self._live and not self._shown:
                print(f"gpusched: {line}", file=sys.stderr, flush=True)
        self._shown = line
