"""A command that stands in this process's place, as `gpusched run` has it: terminal, streams, signals and exit code."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Unpack

from gpusched.api.arguments import RunArguments, with_arguments
from gpusched.api.commands import command_submission
from gpusched.attached.run import AttachedEnd, Waits, run_attached
from gpusched.errors import UsageError
from gpusched.execution.plan_options import ignored_lines
from gpusched.execution.start import this_process
from gpusched.settings import load_settings

__all__ = ["AttachedEnd", "Waits", "run"]


@with_arguments(RunArguments)
def run(
    command: Sequence[str | os.PathLike[str]],
    waits: Waits = lambda _: None,
    warns: Callable[[str], None] = lambda _: None,
    **given: Unpack[RunArguments],
) -> AttachedEnd:
    """Queue a command, run it in this process's place when its turn has come, and return its end.

    The command has this process's streams, of which stdin and stdout are closed here once it runs, and what a terminal
    sends; this process passes on the signals that it gets alone. It belongs into the main thread of a program that does
    little else. `waits` is called with the job while it waits, and with None when it waits no more. A signal that comes
    while it waits takes it out of the queue. `warns` gets what a person should know before. The arguments are those of
    gpusched.run but `requeue`.

    Raises UsageError (NoProgram, NotExecutable), NeverFits, NoDaemon, HostFault, and JobFailed for a job that was ended
    before it could start.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("attached.run handles signals, and belongs into the main thread", "use gpusched.run here")
    for name, function in (("waits", waits), ("warns", warns)):
        if not callable(function):
            raise UsageError(f"{name}: {function!r} is no function", "see help() of the function")
    if given.get("requeue"):
        raise UsageError("--requeue belongs to a command in the background", "add -d, or leave it out")
    settings = load_settings(os.environ)
    submission = command_submission(command, given, settings, this_process())
    for line in ignored_lines(submission, settings):
        warns(line)
    return run_attached(submission, settings, waits)
