"""`gpusched doctor`: what on this host keeps jobs from running, or will, and how to mend it."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpusched.errors import HostFault

if TYPE_CHECKING:  # help needs none of them
    from gpusched.doctor.facts import Finding

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check driver, devices, limits, directories, daemon and versions; print what is wrong and what to type.

    Exit code 5 if there is an error; warnings are for reading.

    Example: gpusched doctor --json | jq '.findings[] | select(.state != "ok")'
    """
    from gpusched.doctor.collect import collect
    from gpusched.doctor.examine import examine

    findings = examine(collect(os.environ))
    if as_json:
        _print_json(findings)
    else:
        from gpusched.render.doctor import print_findings

        print_findings(findings, sys.stdout)
    if any(finding.state == "error" for finding in findings):
        raise typer.Exit(HostFault.exit_code)


def _print_json(findings: "Sequence[Finding]") -> None:
    import msgspec

    import gpusched
    from gpusched.probe.host import host_name

    document = {"host": host_name(), "version": gpusched.__version__, "findings": findings}
    print(msgspec.json.format(msgspec.json.encode(document)).decode())
