"""The command line is thin: a command is parsed, handed to the API, and what comes back is drawn."""

from pathlib import Path
from typing import Final

import pytest

from tests.test_layering import ROOT, imports, sources

CLI: Final = ROOT / "gpusched" / "cli"
ALLOWED: Final = {"api", "cli", "errors", "model", "render", "settings", "times", "units"}

LEFT: Final[dict[str, set[str]]] = {
    "dry_run": {
        "execution.known_leases",
        "execution.lease_usage",
        "execution.plan_options",
        "leases.directory",
        "planner",
        "planner.plan_format",
    },
    "export": {
        "engines.cluster.options",
        "engines.cluster.prepare",
        "execution.network",
        "execution.plan_options",
        "execution.workload_options",
        "execution.workloads",
        "export",
        "export.compose",
        "export.kubernetes",
        "export.text",
    },
    "foreground": {
        "engines.local",
        "execution.directory",
        "execution.expand",
        "execution.learner_socket",
        "execution.nodes",
        "execution.queue_options",
        "execution.requirements",
        "linux.regular_files",
    },
    "invited": {
        "execution.active_python",
        "execution.network",
        "execution.workload_options",
        "execution.workloads",
        "joining.invitation",
        "planner",
    },
    "join": {
        "engines.local",
        "execution.directory",
        "execution.network",
        "execution.plan_options",
        "execution.queue_options",
        "execution.requirements",
        "execution.submission",
        "execution.workloads",
        "joining.invitation",
        "joining.keys",
        "joining.tcp",
    },
    "launch": {
        "engines.cluster.options",
        "engines.cluster.prepare",
        "engines.local",
        "execution.active_python",
        "execution.expand",
        "execution.plan_options",
        "execution.queue_options",
        "execution.requirements",
        "execution.submission",
        "execution.workload_options",
        "execution.workloads",
    },
    "listening": {
        "execution.directory",
        "execution.hosts",
        "execution.network",
        "joining.invitation",
        "joining.tcp",
        "planner",
    },
    "plan": {
        "execution.plan_options",
        "execution.workloads",
        "planner",
    },
    "planning": {
        "execution.workloads",
        "planner.policies",
    },
    "cluster": {
        "engines.cluster.options",
    },
    "workload_arguments": {
        "execution.workload_options",
    },
}
"""What a file still imports beyond that. This shrinks only: what is not imported any more is removed here."""


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def beyond(path: Path) -> set[str]:
    """Return the modules of gpusched that a file imports and a command should not, without `gpusched.`."""
    names = {name if is_module(name) else name.rpartition(".")[0] for name in imports(path)}
    below = {name.removeprefix("gpusched.") for name in names if name.startswith("gpusched.")}
    return {name for name in below if name.partition(".")[0] not in ALLOWED}


@pytest.mark.parametrize("path", sources("gpusched/cli"), ids=lambda path: path.stem)
def test_a_command_imports_the_api_and_what_draws_its_answers(path: Path) -> None:
    assert beyond(path) == LEFT.get(path.stem, set())


def test_only_files_that_there_are_have_something_left() -> None:
    assert not set(LEFT) - {path.stem for path in sources("gpusched/cli")}
