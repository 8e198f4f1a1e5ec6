"""Which files in a job's directory are gpusched's own: all else is what the job wrote, and may be kept."""

import pytest

from gpusched.execution.removed import is_ours


@pytest.mark.parametrize(
    "name",
    ["spec.json", "status.json.tmp", "logs", "logs.removed", "keys", "keys.2", ".frame.txt.x1", "memory", "environ"],
)
def test_what_gpusched_writes_is_its_own(name: str) -> None:
    assert is_ours(name)


@pytest.mark.parametrize(
    "name",
    ["weights.npz", "progress.jsonl", "keys.csv", "logs.tar", "memory.csv", "status.json.bak", ".config", "x.tmp"],
)
def test_what_a_job_writes_is_not(name: str) -> None:
    assert not is_ours(name)
