"""`gpusched notify`: send a test notification."""

from typing import Annotated, Literal

import typer

from gpusched.errors import JobFailed
from gpusched.render.text import printable

__all__ = ["notify"]

Action = Literal["test"]


def notify(
    action: Annotated[Action, typer.Argument(help="test: send a test event.")],  # noqa: ARG001 (there is one)
    target: Annotated[
        str | None,
        typer.Argument(help="A command or URL, as of --notify; else those of the configuration.", metavar="[CMD|URL]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send a test notification to where the configuration has them sent, or to a command or URL; print what came of it.

    It ends with 1 if one was not delivered.

    Example: gpusched notify test 'notify-send "$GPUSCHED_EVENT_TITLE"'
    """
    from gpusched.api.notifications import send_test

    deliveries = send_test(target)
    if as_json:
        import msgspec

        print(msgspec.json.encode({"deliveries": deliveries}).decode())
    else:
        for one in deliveries:
            print(f"{one.destination}: {'delivered' if one.problem is None else printable(one.problem)}")
    if any(one.problem is not None for one in deliveries):
        raise typer.Exit(JobFailed.exit_code)
