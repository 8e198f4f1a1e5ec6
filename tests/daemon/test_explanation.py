"""Why a job waits is found out of the queue as it is when the question comes, and not of an earlier one."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpusched.daemon import explanation
from gpusched.daemon.explanation import Explanation
from gpusched.model.status import JobState, JobStatus

STATUS = JobStatus(id="run-2", workload="run", state=JobState.QUEUED, counts=(), replicas=(), run_dir="/j/run-2")
JOB = SimpleNamespace(id="run-2", array=None, state=JobState.QUEUED)


def seen() -> Any:
    return SimpleNamespace(waiting=(JOB,))


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A daemon's state after a pass; what is found out of it names what it was found out of."""
    monkeypatch.setattr(explanation, "Outlook", lambda _job, queue, *_: SimpleNamespace(queue=queue))
    monkeypatch.setattr(explanation, "with_later_members", lambda _state, queue, _most: queue)
    monkeypatch.setattr(explanation, "member_that_waits", lambda _state, _id: None)
    jobs = SimpleNamespace(job=lambda _: JOB, problem=None)
    return SimpleNamespace(
        jobs=jobs,
        shown=lambda _: STATUS,
        queue_seen=seen(),
        queue_changed=False,
        expectations=None,
        settings=None,
        outlooks=[],
    )


def test_where_nothing_has_changed_since_the_latest_pass_that_is_the_queue(state: Any) -> None:
    Explanation(state, "run-2").answer(late=False)
    assert [one.queue for one in state.outlooks] == [state.queue_seen]


def test_after_a_change_the_next_pass_is_waited_for(state: Any) -> None:
    state.queue_changed = True
    asked = Explanation(state, "run-2")
    assert asked.answer(late=False) is None
    assert state.outlooks == []
    state.queue_seen = seen()
    asked.answer(late=False)
    assert [one.queue for one in state.outlooks] == [state.queue_seen]


def test_where_no_pass_can_come_the_latest_is_better_than_none(state: Any) -> None:
    state.queue_changed, state.jobs.problem = True, "the disk is full"
    Explanation(state, "run-2").answer(late=False)
    assert [one.queue for one in state.outlooks] == [state.queue_seen]
