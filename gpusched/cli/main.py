"""The entry point: it imports only the command that was asked for, and turns every error into one message and a code.

It must not know what a command does.
"""

import atexit
import errno
import gc
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from gpusched.cli.options import options_before_program, read_plainly
from gpusched.errors import GpuschedError, HostFault, UsageError

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "plan": "Show which process would go on which GPU, and why.",
    "launch": "Start a workload and follow it to its end.",
    "new": "Write a workload of your own, to begin with.",
    "export": "Write a plan as manifests for Kubernetes or Compose, or as a batch script for Slurm.",
    "join": "Run actors here for a learner on another host.",
    "run": "Run a command on GPUs that are free, as if it stood there alone.",
    "sweep": "Queue a command or a workload many times, with other values of its parameters.",
    "results": "Show what came of the members of a sweep: parameters, ends and scores.",
    "status": "Show devices, jobs and processes.",
    "ps": "List the jobs that run, wait or ended lately.",
    "fit": "Measure what a workload needs of a GPU, and print what to write into its file.",
    "usage": "Show what jobs used of memory and CPUs, beside what they were given.",
    "why": "Show why a job waits, when it starts, and what would let it start now.",
    "logs": "Print what a job has written, and follow it.",
    "wait": "Wait until jobs have ended.",
    "stop": "Stop jobs.",
    "hold": "Keep queued jobs from starting.",
    "release": "Let held jobs start.",
    "group": "Show groups of jobs; limit how many of one run, pause it, resume it.",
    "edit": "Change jobs that wait: their priority, memory, time limit and so on.",
    "rerun": "Queue the same again.",
    "rm": "Remove jobs that have ended, with their directories.",
    "prune": "Remove jobs that ended some time ago.",
    "web": "Show GPUs and jobs as a page in the browser.",
    "metrics": "Print devices, jobs and their processes as numbers for Prometheus.",
    "keys": "Make, list and revoke the keys by which other hosts join a job.",
    "notify": "Send a test notification, and show what came of it.",
    "daemon": "Run, start, stop and check the process that holds the queue.",
    "doctor": "Find what is wrong with this host, and what to type.",
}
_MEANT: Final = {
    **dict.fromkeys(("kill", "cancel", "scancel", "terminate"), "to end a job: gpusched stop JOB, at once with --kill"),
    **dict.fromkeys(("queue", "squeue", "list", "ls", "jobs"), "to list jobs: gpusched ps; why they wait: --why"),
    **dict.fromkeys(
        ("remove", "delete", "clean"), "to remove a job that has ended: gpusched rm JOB; to end one: gpusched stop JOB"
    ),
    **dict.fromkeys(("submit", "sbatch", "enqueue"), "to queue a command: gpusched run -d -- COMMAND"),
    **dict.fromkeys(("array", "grid", "map"), "to queue a command many times: gpusched sweep"),
    **dict.fromkeys(("exec", "srun"), "to run a command: gpusched run -- COMMAND"),
    **dict.fromkeys(("start", "train"), "to start a workload: gpusched launch WORKLOAD"),
    **dict.fromkeys(("again", "restart", "requeue", "retry"), "to queue the same again: gpusched rerun JOB"),
    **dict.fromkeys(("modify", "update", "alter", "set"), "to change a job that waits: gpusched edit JOB"),
    **dict.fromkeys(
        ("groups", "parallel", "pause", "resume"),
        "to limit, pause or resume a group: gpusched group NAME --at-most N; to keep a job back: gpusched hold JOB",
    ),
    **dict.fromkeys(("log", "tail"), "to read what a job wrote: gpusched logs JOB"),
    **dict.fromkeys(("sacct", "seff", "efficiency", "report"), "to see what jobs used: gpusched usage"),
    **dict.fromkeys(("top", "info", "nvidia-smi", "gpus"), "to see devices and jobs: gpusched status"),
}
"""What other schedulers call a command, and which one of ours is meant."""

_COMPLETES: Final = "_GPUSCHED_COMPLETE"
"""Where a shell asks for completion: as typer calls it."""

_COLLECTED_AFTER: Final = 50_000
"""Objects. Most commands end with fewer: imports alone would cause 60 collections."""

_INTERRUPTED: Final = 130
_MORE_FILES: Final = "this shell lets a process open too few files: ulimit -n 1024"
_SHORT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
_OUTPUT_FAILS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/reference.md); no traceback reaches the person."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if arguments[0] == "help":  # as of git and others: help launch
        arguments = [*arguments[1:2], "--help"]
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(gc.freeze)  # else the interpreter scans all that was imported once more before it ends
    _have_streams()
    warnings.showwarning = _warn
    outcome = _outcome(arguments)
    try:
        if isinstance(outcome, GpuschedError):
            _report(outcome, as_json=_wants_json(arguments))
        sys.stdout.flush()
    except OSError:  # the reader has gone, and the code stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit stays quiet
    return outcome.exit_code if isinstance(outcome, GpuschedError) else outcome


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning as a line, without the place in the code that it is from."""
    from gpusched.render.text import printable

    print(f"gpusched: warning: {printable(str(message))}", file=sys.stderr)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among the words to us: not after `--`, nor behind where a command of `run` begins."""
    ours = list(takewhile(lambda word: word != "--", arguments))
    if ours[:1] == ["run"]:
        module = sys.modules.get("gpusched.cli.run")  # None: its import is what failed
        ours = [*options_before_program(module.run, ours[1:])] if module else ours
    return "--json" in ours


def _outcome(arguments: Sequence[str]) -> int | GpuschedError:
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output has seen enough
        return 0
    except SystemExit as end:  # argparse ends so after a help; rich and typer end so, with 1, after a BrokenPipeError
        code = 0 if isinstance(end.__context__, BrokenPipeError) else end.code
    except Exception as error:  # noqa: BLE001 (the last line of defence: printed as one line, kept in a file)
        return _INTERRUPTED if _is_of_typer(error, "Abort") else _understood(error, arguments)
    return code if isinstance(code, int) else 0


def _understood(error: Exception, arguments: Sequence[str]) -> GpuschedError:
    if isinstance(error, GpuschedError):
        return error
    if _is_of_typer(error, "TyperException"):
        named = _named(arguments)
        hint = f"see gpusched{f' {named}' if named in COMMANDS else ''} --help"
        if named not in COMMANDS and (meant := _MEANT.get(named or "")):
            hint = f"{meant}; {hint}"
        return UsageError(_message(error), hint if getattr(error, "exit_code", 0) == UsageError.exit_code else "")
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAILS:
        return HostFault(f"the output cannot be written: {error.strerror}", "see where it was to go")
    if getattr(error, "errno", None) in _SHORT_OF_FILES:  # a ZMQError has one, too
        return HostFault(str(error), _MORE_FILES)
    return _unexpected(error)


def _have_streams() -> None:
    """Make sure that there is something to print to (`>&-`), and that no name of a file is too odd to be printed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (it stays open to the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(arguments: Sequence[str]) -> object:
    """Run the command that is named, by a plain reading of its words if they allow one; typer has all others."""
    named = _named(arguments)
    if named in COMMANDS and arguments[0] == named and _COMPLETES not in os.environ:
        command = _command(named)
        values = read_plainly(command, arguments[1:])
        if values is not None:
            return command(**values)
    from gpusched.cli.application import application

    names = (named,) if named in COMMANDS else COMMANDS  # all of them for help and completion
    app = application((name, _command(name), COMMANDS[name]) for name in names)
    return app(args=arguments, prog_name="gpusched", standalone_mode=False)


def _command(name: str) -> Callable[..., Any]:
    """Return a command. Most commands' modules import msgspec, which can do without typing_extensions.

    That one imports `inspect`: without it `gpusched ps` takes a tenth less time.
    """
    hidden = sys.modules.setdefault("typing_extensions", None) is None  # type: ignore[arg-type]
    try:
        function: Callable[..., Any] = getattr(import_module(f"gpusched.cli.{name}"), name)
    finally:
        if hidden:
            del sys.modules["typing_extensions"]
    return function


def _named(arguments: Sequence[str]) -> str | None:
    """Return the first word that is no option: the command, if it is one."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _report(error: GpuschedError, *, as_json: bool) -> None:
    short_of_files = any(os.strerror(number) in error.message for number in _SHORT_OF_FILES)
    hint = _MORE_FILES if short_of_files else error.hint  # whatever was to be opened, that one is not at fault
    if as_json:
        import json

        print(json.dumps({"error": {"code": error.code, "message": error.message, "hint": hint}}))
    else:
        from gpusched.render.text import printable

        print(f"gpusched: {printable(error.message)}", file=sys.stderr)
        if hint:
            print(f"  hint: {printable(hint)}", file=sys.stderr)


def _is_of_typer(error: Exception, kind: str) -> bool:
    typer = sys.modules.get("typer")
    return typer is not None and isinstance(error, getattr(typer, kind))


def _message(error: Exception) -> str:
    """Return the message for a wrong command line, in one line, for every version of typer."""
    worded = getattr(error, "format_message", None)
    text = " ".join(str(worded() if worded else error).split())
    return text.replace("a valid int range", "a whole number")


def _unexpected(error: Exception) -> GpuschedError:
    import tempfile
    import traceback

    story = "".join(traceback.format_exception(error))
    message = f"internal error: {type(error).__name__}: {error}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="gpusched-crash-", suffix=".txt", delete=False, errors="backslashreplace"
        ) as file:
            file.write(story)
    except OSError:  # there is no room for it, or no directory
        *_, last = traceback.extract_tb(error.__traceback__)
        return GpuschedError(message, f"please report it: {Path(last.filename).name}, line {last.lineno}")
    return GpuschedError(message, f"please report it with {file.name}, which has the details")
