"""`launch --engine` on a cluster: what was typed of it, and what is printed before anything is submitted."""

import sys
from collections.abc import Mapping
from typing import Any

from gpusched.api.clusters import ClusterPlan
from gpusched.cli.cluster_options import OWN

__all__ = ["print_warnings", "show_plan", "with_engine_options"]


def with_engine_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given, with the options that engines have registered as the API takes them."""
    own = {name: given[name] for name in OWN if given.get(name)}
    return {name: value for name, value in given.items() if name not in OWN} | {"engine_options": own}


def print_warnings(plan: ClusterPlan) -> None:
    """Print on stderr what a person should know before it is submitted."""
    for warning in plan.warnings:
        print(f"gpusched: {warning}", file=sys.stderr)


def show_plan(plan: ClusterPlan, *, as_json: bool) -> None:
    """Print what would be submitted, as --dry-run does: on stdout a batch script alone, such that a file takes it."""
    lines = [plan.needs, f"would submit {plan!r}", "nothing has been submitted"]
    if not as_json:
        text = "\n".join(f"# {line}" for line in lines if line)
        print(text, file=sys.stderr if plan.script else sys.stdout, flush=True)
    sys.stdout.write(plan.json() if as_json else plan.script)
