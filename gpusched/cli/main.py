"""The entry point: it imports only the command that was asked for, and turns every error into one message and a code.

It must not know what a command does.
"""

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final

import typer

import gpusched
from gpusched.errors import GpuschedError, HostFault, UsageError

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "plan": "Say which process would go on which GPU, and why.",
    "launch": "Start a workload and follow it to its end.",
    "run": "Run a command on GPUs that are free, as if it stood there alone.",
    "status": "Show devices, jobs and processes.",
    "ps": "List the jobs that run, wait or ended lately.",
    "logs": "Print what a job has written, and follow it.",
    "wait": "Wait until jobs have ended.",
    "stop": "Stop jobs.",
    "hold": "Keep queued jobs from starting.",
    "release": "Let held jobs start.",
    "daemon": "Run, start, stop and look at the process that holds the queue.",
    "doctor": "Say what is wrong with this host, and what to type.",
}
_PASSES_OPTIONS_ON: Final = {
    "plan": {"allow_extra_args": True, "ignore_unknown_options": True},
    "launch": {"allow_extra_args": True, "ignore_unknown_options": True},
    "run": {"allow_interspersed_args": False},
}
_INTERRUPTED: Final = 130
_OUTPUT_FAILS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/reference.md); no traceback reaches the person."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _have_streams()
    outcome = _outcome(arguments)
    try:
        if isinstance(outcome, GpuschedError):
            _tell(outcome, as_json=_wants_json(arguments))
        sys.stdout.flush()
    except OSError:  # nobody is there to be told, and the code stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit stays quiet
    return outcome.exit_code if isinstance(outcome, GpuschedError) else outcome


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among the words to us: not after `--`, nor behind where a command of `run` begins.

    Where that is without a `--`, only the options' own grammar knows: then those count that stand first.
    """
    ours = list(takewhile(lambda word: word != "--", arguments))
    if ours[:1] == ["run"] and len(ours) == len(arguments):
        ours = list(takewhile(lambda word: word.startswith("-"), ours[1:]))
    return "--json" in ours


def _outcome(arguments: Sequence[str]) -> int | GpuschedError:
    try:
        code = _application(arguments)(args=arguments, prog_name="gpusched", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:  # who reads the output has seen enough
        return 0
    except SystemExit as end:  # argparse ends so after a help; rich and typer end so, with 1, after a BrokenPipeError
        code = 0 if isinstance(end.__context__, BrokenPipeError) else end.code
    except Exception as error:  # noqa: BLE001 (the last line of defence: told in one line, kept in a file)
        return _understood(error, arguments)
    return code if isinstance(code, int) else 0


def _understood(error: Exception, arguments: Sequence[str]) -> GpuschedError:
    if isinstance(error, GpuschedError):
        return error
    if isinstance(error, typer.TyperException):
        named = _named(arguments)
        hint = (
            f"see gpusched{f' {named}' if named in COMMANDS else ''} --help"
            if error.exit_code == UsageError.exit_code
            else ""
        )
        return UsageError(_message(error), hint)
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAILS:
        return HostFault(f"the output cannot be written: {error.strerror}", "see where it was to go")
    return _unexpected(error)


def _have_streams() -> None:
    """Make sure that there is something to print to (`>&-`), and that no name of a file is too odd to be printed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (it stays open to the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _application(arguments: Sequence[str]) -> Callable[..., object]:
    """Build the application with the one command that is named; with all of them for help and completion."""
    app = typer.Typer(
        help="Pack many processes onto few GPUs and keep them running.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
    )
    app.callback()(_about)
    named = _named(arguments)
    for name in (named,) if named in COMMANDS else COMMANDS:
        function = getattr(import_module(f"gpusched.cli.{name}"), name)
        app.command(name, short_help=COMMANDS[name], context_settings=_PASSES_OPTIONS_ON.get(name))(function)
    return app


def _named(arguments: Sequence[str]) -> str | None:
    """Return the first word that is no option: the command, if it is one."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpusched {gpusched.__version__}")
        raise typer.Exit


def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _tell(error: GpuschedError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}}))
    else:
        from gpusched.cli.text import printable

        print(f"gpusched: {printable(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {printable(error.hint)}", file=sys.stderr)


def _message(error: typer.TyperException) -> str:
    """Return what a wrong command line is told, in one line, whichever way this version of typer words it."""
    worded = getattr(error, "format_message", None)
    told = " ".join(str(worded() if worded else error).split())
    return told.replace("a valid int range", "a whole number")


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
