"""The whole command line as typer sees it: for help, completion, and whatever a plain reading does not understand."""

from collections.abc import Callable, Iterable
from typing import Annotated, Final

import typer

import gpusched
from gpusched.cli.options import typed

__all__ = ["application"]

_PASSES_OPTIONS_ON: Final = {
    "plan": {"allow_extra_args": True, "ignore_unknown_options": True},
    "launch": {"allow_extra_args": True, "ignore_unknown_options": True},
    "fit": {"allow_extra_args": True, "ignore_unknown_options": True},
    "export": {"allow_extra_args": True, "ignore_unknown_options": True},
    "run": {"allow_interspersed_args": False},
}


def application(commands: Iterable[tuple[str, Callable[..., object], str]]) -> Callable[..., object]:
    """Return the command line with these commands: name, function, and what it does in one line."""
    app = typer.Typer(
        help="Pack many processes onto few GPUs and keep them running.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
    )
    app.callback()(_about)
    for name, function, summary in commands:
        app.command(name, short_help=summary, context_settings=_PASSES_OPTIONS_ON.get(name))(typed(function))
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
