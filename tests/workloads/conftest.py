"""What tests of workloads share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.launched import Launches


@pytest.fixture
def launches() -> Iterator[Launches]:
    """Starts launches, and ends with the test what is left of them."""
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp") as path:
        made = Launches(Path(path))
        yield made
        made.end()


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test is a learner that was launched, with this run directory."""
    for name, value in {
        "GPUSCHED_JOB": "any-1",
        "GPUSCHED_ROLE": "learner",
        "GPUSCHED_RANK": "0",
        "GPUSCHED_ROLE_COUNT": "1",
        "GPUSCHED_REPLICA": "learner.0",
        "GPUSCHED_RUN_DIR": str(tmp_path),
        "GPUSCHED_ENDPOINT": "ipc:///unused",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path
