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
        ([SUCCEEDED, LOST], LOST, "1 succeeded, 1 lost"),
        ([SUCCEEDED, SUCCEEDED, FAILED, FAILED, CANCELLED], CANCELLED, "2 succeeded, 2 failed, 1 cancelled"),
        ([FAILED, FAILED, RUNNING], RUNNING, "2 failed, 1 running"),
    ],
)
@pytest.mark.parametrize("waits", [False, True], ids=["alone", "of-one-that-waits"])
def test_an_array_of_which_only_members_are_known_has_the_state_that_follows_from_theirs_and_nothing_of_one(
    members: Sequence[JobState], state: JobState, text: str, *, waits: bool
) -> None:
    jobs = [replace(MEMBER, id=f"run-1[{number}]", state=one) for number, one in enumerate(members)]
    if waits:  # as a directory has it: more of its members may come
        jobs.append(replace(MEMBER, id="run-1", state=JobState.QUEUED, why="it has not started", progress=None))
    for order in (jobs, jobs[::-1]):
        (row,) = job_rows(order, 1000.0)
        assert (row["id"], row["state"]) == ("run-1", JobState.QUEUED if waits and state is not RUNNING else state)
        assert (row["score"], row["started"], row["processes"], row["why"]) == (None, None, 0, None)
        assert sorted(str(row["text"]).removeprefix("in the last hour: ").split(", ")) == sorted(text.split(", "))


def test_an_array_that_waits_and_of_which_no_member_has_begun_is_as_its_directory_has_it() -> None:
    job = replace(MEMBER, id="run-1", state=JobState.QUEUED, why="it has not started", progress=None)
    (row,) = job_rows([job], 1000.0)
    assert (row["state"], row["why"]) == (JobState.QUEUED, "it has not started")
