"""The rows of the page: an array is one, also while the daemon is away and only its members are known."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gpusched.model.status import JobState, JobStatus
from gpusched.web.view import job_rows

MEMBER = JobStatus(
    id="run-1[7]",
    workload="run",
    state=JobState.SUCCEEDED,
    counts=(),
    replicas=(),
    run_dir="/j/1",
    started=7.0,
    progress={"score": 0.5},
)
SUCCEEDED, FAILED, LOST, CANCELLED, RUNNING = (
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.LOST,
    JobState.CANCELLED,
    JobState.RUNNING,
)


@pytest.mark.parametrize(
    ("members", "state", "text"),
    [
        ([SUCCEEDED], SUCCEEDED, "1 succeeded"),
        ([SUCCEEDED, SUCCEEDED, FAILED], FAILED, "2 succeeded, 1 failed"),
        ([LOST, SUCCEEDED], LOST, "1 lost, 1 succeeded"),
        ([SUCCEEDED, CANCELLED, CANCELLED], CANCELLED, "1 succeeded, 2 cancelled"),
        ([FAILED, FAILED, RUNNING], RUNNING, "2 failed, 1 running"),
    ],
)
def test_an_array_of_which_only_members_are_known_has_the_worst_of_their_states_and_nothing_of_one(
    members: Sequence[JobState], state: JobState, text: str
) -> None:
    jobs = [replace(MEMBER, id=f"run-1[{number}]", state=one) for number, one in enumerate(members)]
    (row,) = job_rows(jobs, 1000.0)
    assert (row["id"], row["state"], row["text"]) == ("run-1", state, f"in the last hour: {text}")
    assert (row["score"], row["started"], row["processes"]) == (None, None, 0)
