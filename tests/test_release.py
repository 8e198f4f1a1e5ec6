"""What is published: the distribution's name, and a lock of what it needs to run."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; .*)? \\$", re.MULTILINE)


def pins(lock: str) -> set[tuple[str, str]]:
    return set(PINNED.findall((ROOT / "requirements" / lock).read_text()))


def test_the_distribution_has_a_name_that_is_free_and_the_command_keeps_its_own() -> None:
    assert PROJECT["name"] == "gpusched-daemon"
    assert list(PROJECT["scripts"]) == ["gpusched"]


def test_the_lock_of_what_runs_has_each_dependency_and_the_versions_that_are_tested() -> None:
    needed = {re.split(r"[<>=~ ;\[]", line)[0] for line in PROJECT["dependencies"]}
    assert needed <= {name for name, _ in pins("base.txt")}
    assert pins("base.txt") <= pins("cpu.txt")


def test_the_lock_of_what_runs_has_nothing_of_the_tests_and_the_workloads() -> None:
    assert {"pytest", "ruff", "tensorflow", "ray", "uv"}.isdisjoint(name for name, _ in pins("base.txt"))
