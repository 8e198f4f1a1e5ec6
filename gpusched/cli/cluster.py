"""`launch --engine` on a cluster: what was typed of it, and what is printed before anything is submitted."""

import sys
from collections.abc import Mapping
from typing import Any

from gpusched.api.arguments import cluster_options
from gpusched.api.clusters import ClusterPlan
from gpusched.cli.cluster_options import OWN
from gpusched.engines.cluster.options import ClusterOptions

__all__ = ["cluster_wish", "print_warnings", "show_plan", "submission_text"]


def cluster_wish(given: Mapping[str, Any]) -> ClusterOptions:
    """Return what is given of CLUSTER."""
    return cluster_options({**given, "engine_options": {name: given[name] for name in OWN if given.get(name)}})


def print_warnings(plan: ClusterPlan) -> None:
    """Print on stderr what a person should know before it is submitted."""
    for warning in plan.warnings:
        print(f"gpusched: {warning}", file=sys.stderr)


def submission_text(plan: ClusterPlan, *, as_json: bool) -> str:
    """Return a batch script, which can be submitted by hand; or JSON about what would be submitted."""
    if not as_json:
        return plan.script
    import msgspec

    report = {"engine": plan.job.engine, "nodes": msgspec.to_builtins(plan.job.nodes), "script": plan.script}
    return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"


def show_plan(plan: ClusterPlan, *, as_json: bool) -> None:
    """Print what would be submitted, as --dry-run does: on stdout a batch script alone, such that a file takes it."""
    lines = [plan.needs, f"would submit {plan!r}", "nothing has been submitted"]
    if not as_json:
        text = "\n".join(f"# {line}" for line in lines if line)
        print(text, file=sys.stderr if plan.script else sys.stdout, flush=True)
    sys.stdout.write(submission_text(plan, as_json=as_json))
