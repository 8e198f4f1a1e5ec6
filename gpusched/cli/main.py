"""The entry point: it imports only the command that was asked for, and turns every error into one message and a code.

It must not know what a command does.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

import gpusched
from gpusched.errors import GpuschedError, UsageError

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = ("plan", "launch", "status")
_PASSES_OPTIONS_ON: Final = {"launch": {"allow_extra_args": True, "ignore_unknown_options": True}}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (DESIGN 4.1); no traceback reaches the person."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        code = _application(arguments)(args=arguments, prog_name="gpusched", standalone_mode=False)
        sys.stdout.flush()
    except GpuschedError as error:
        return _told(error, as_json)
    except typer.TyperException as error:
        hint = "see gpusched --help" if error.exit_code == UsageError.exit_code else ""
        return _told(UsageError(_message(error), hint), as_json)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit stays quiet
        return 0
    except Exception as error:  # noqa: BLE001 (the last line of defence: told in one line, kept in a file)
        return _told(_unexpected(error), as_json)
    return code if isinstance(code, int) else 0


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
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name in (named,) if named in COMMANDS else COMMANDS:
        function = getattr(import_module(f"gpusched.cli.{name}"), name)
        app.command(name, context_settings=_PASSES_OPTIONS_ON.get(name))(function)
    return app


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


def _told(error: GpuschedError, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}}))
    else:
        print(f"gpusched: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def _message(error: typer.TyperException) -> str:
    """Return what a wrong command line is told, whichever way this version of typer words it."""
    worded = getattr(error, "format_message", None)
    return str(worded()) if worded else str(error)


def _unexpected(error: Exception) -> GpuschedError:
    import tempfile
    import traceback

    story = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile("w", prefix="gpusched-crash-", suffix=".txt", delete=False) as file:
        file.write(story)
    return GpuschedError(
        f"internal error: {type(error).__name__}: {error}",
        f"please report it with {Path(file.name)}, which has the details",
    )
