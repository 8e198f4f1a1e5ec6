"""`gpusched doctor`: what on this host keeps jobs from running, or will, and how to mend it."""

import sys
from typing import Annotated

import typer

from gpusched.errors import HostFault

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check driver, devices, limits, directories, daemon and versions; print what is wrong and what to type.

    Exit code 5 if there is an error; warnings are for reading.

    Example: gpusched doctor --json | jq '.findings[] | select(.state != "ok")'
    """
    from gpusched.api.checks import doctor as diagnose

    diagnosis = diagnose()
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(diagnosis)).decode())
    else:
        from gpusched.render.doctor import print_findings

        print_findings(diagnosis.findings, sys.stdout)
    if diagnosis.has_errors:
        raise typer.Exit(HostFault.exit_code)
