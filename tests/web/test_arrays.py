"""An array that has ended is one row, with what came of all its members, however long ago they ended."""

from msgspec.structs import replace

from gpusched.api.queue import FoundJobs
from gpusched.errors import NoDaemon
from gpusched.model.status import ArrayStatus, JobState, JobStatus
from gpusched.web.arrays import EndedArrays
from gpusched.web.view import job_rows

MEMBER = JobStatus(id="run-1[7]", workload="run", state=JobState.SUCCEEDED, counts=(), replicas=(), run_dir="/j/1")
ARRAY = replace(MEMBER, id="run-1", state=JobState.FAILED, array=ArrayStatus(count=9, succeeded=7, failed=2))


class Daemon:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers, self.now = False, 100.0

    def find(self, name: str) -> FoundJobs:
        self.asked.append(name)
        if not self.answers:
            raise NoDaemon("it hangs", "wait")
        return FoundJobs((ARRAY,))


def test_it_is_asked_for_once_and_where_there_is_no_answer_again_later() -> None:
    daemon = Daemon()
    arrays = EndedArrays(daemon.find, lambda: daemon.now)
    assert arrays.of([MEMBER], ask=True) == {}
    assert arrays.of([MEMBER], ask=True) == {}
    assert len(daemon.asked) == 1
    daemon.answers, daemon.now = True, 120.0
    for _ in range(3):
        assert arrays.of([MEMBER], ask=True) == {"run-1": ARRAY}
    assert len(daemon.asked) == 2
    live = replace(ARRAY, state=JobState.RUNNING)
    assert arrays.of([MEMBER, live], ask=True) == {}, "it goes on: its own row is there"
    assert arrays.of([MEMBER], ask=True) == {"run-1": ARRAY}
    assert len(daemon.asked) == 3, "what came of it then is another thing"


def test_a_daemon_that_does_not_answer_is_not_asked() -> None:
    daemon = Daemon()
    assert EndedArrays(daemon.find, lambda: daemon.now).of([MEMBER], ask=False) == {}
    assert daemon.asked == []


def test_its_row_has_all_members_and_without_it_those_of_the_last_hour() -> None:
    (row,) = job_rows([MEMBER], 1000.0, {"run-1": ARRAY})
    assert (row["id"], row["state"], row["text"]) == ("run-1", "failed", "failed, 9 of 9 ended, 2 failed")
    (row,) = job_rows([MEMBER], 1000.0)
    assert (row["id"], row["state"], row["text"]) == ("run-1", "succeeded", "in the last hour: 1 succeeded")
