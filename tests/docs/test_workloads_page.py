"""The programs on docs/workloads.md are those in docs/examples, and they run as it says."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Command
from tests.patience import PATIENCE_S

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = sorted(file.relative_to(DOCS) for kind in ("*.py", "*.toml") for file in (DOCS / "examples").rglob(kind))
IS_THE_LOWEST_POINT = 0.1
"""How far from it each coordinate may be: the next valley is 1 away."""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy to run, so that nothing is left in docs."""
    return Path(shutil.copytree(DOCS / "examples", tmp_path / "examples"))


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_page_shows_the_program_that_runs(program: Path) -> None:
    assert f"\n{(DOCS / program).read_text()}```\n" in (DOCS / "workloads.md").read_text()


def test_the_program_with_pipes_finds_the_lowest_point(examples: Path) -> None:
    subprocess.run([sys.executable, "pipes.py"], cwd=examples, check=True, timeout=PATIENCE_S)

    with np.load(examples / "found.npz") as found:
        assert abs(found["centre"]).max() < IS_THE_LOWEST_POINT


def test_the_same_as_a_workload_finds_it_too(examples: Path, command: Command) -> None:
    done = command.run("launch", "search", cwd=examples)

    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(command.state / "jobs" / "search-1" / "found.npz") as found:
        assert abs(found["centre"]).max() < IS_THE_LOWEST_POINT


def test_the_page_shows_what_new_prints(command: Command, tmp_path: Path) -> None:
    told = command.run("new", "mine", cwd=tmp_path).stdout

    assert f"```\n$ gpusched new mine\n{told}```\n" in (DOCS / "workloads.md").read_text()
