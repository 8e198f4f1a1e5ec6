"""Jobs that wait are changed, any job is queued again, and jobs are selected, from Python."""

import datetime as dt

import pytest

import gpusched
from gpusched.api import editing, queue
from gpusched.errors import NotFound, UsageError
from tests.patience import PATIENCE_S


@pytest.mark.usefixtures("command")
def test_a_job_is_changed_and_queued_again() -> None:
    waits = gpusched.run(["true"], num_gpus=0, hold=True, name="one")
    waits.edit(priority=3, time_limit="1m")
    assert (waits.status().priority, waits.status().time_limit_s) == (3, 60)
    again = waits.rerun(name="two", hold=False)
    assert again.wait(PATIENCE_S).name == "two"
    for nothing in ({"hold": True}, {}, {"priority": None}):
        with pytest.raises(UsageError, match="nothing to change"):
            editing.edit(waits, **nothing)
    with pytest.raises(TypeError, match="typo"):
        editing.edit(waits, typo=1)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="it is empty"):
        editing.edit(waits, name="")
    with pytest.raises(UsageError, match="only a queued job"):
        again.edit(priority=1)


@pytest.mark.usefixtures("command")
def test_jobs_are_selected_by_what_they_are() -> None:
    jobs = [gpusched.run(["true", word], num_gpus=0, hold=True, name="train") for word in ("a", "b", "c")]
    ids = tuple(job.id for job in jobs)
    assert queue.select("train*") == ids
    assert queue.select(text="true b") == ids[1:2]
    assert queue.select(last=True) == ids[2:]
    assert [job.id for job in queue.stop(queue.select("train*", state="queued")).jobs] == list(ids)
    assert queue.select("train*", state="cancelled", since="1h") == ids[::-1]
    assert queue.select(state=["running", "queued"]) == ()
    assert gpusched.job("train.2") == jobs[1]
    assert [job.id for job in queue.find_jobs(["train.2"] * 10_001).jobs] == [ids[1]]
    with pytest.raises(UsageError, match="means several jobs"):
        gpusched.job("train*")
    with pytest.raises(NotFound, match="no job that runs or waits matches"):
        queue.select("train*")
    assert queue.select(state="running,queued") == ()
    for moment in (dt.datetime.now().astimezone() + dt.timedelta(days=1), dt.datetime(1, 1, 1)):  # noqa: DTZ001 (a person's)
        with pytest.raises(UsageError, match="since: "):
            queue.select(since=moment)
    with pytest.raises(UsageError, match="there is no state 'odd'"):
        queue.select(state="odd")
