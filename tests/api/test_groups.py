"""gpusched.api.groups: groups as values that print."""

import pytest

import gpusched
from gpusched.api import groups, queue
from gpusched.errors import UsageError
from gpusched.model.status import JobState
from tests.patience import until


@pytest.mark.usefixtures("command")
def test_a_group_is_limited_paused_and_found_again() -> None:
    assert groups.find_groups() == ()
    assert groups.find_group("sweep") == groups.Group(name="sweep")
    assert groups.change_group("sweep", at_most=1, paused=True) == groups.Group(name="sweep", at_most=1, paused=True)
    jobs = [gpusched.run(["sleep", "600"], num_gpus=0, group="sweep") for _ in range(2)]
    assert groups.change_group("sweep", paused=False).at_most == 1, "what is not given stays"
    assert next(status for status in jobs[0].watch(0.05) if status.state is JobState.RUNNING).group == "sweep"
    assert jobs[1].status().state is JobState.QUEUED
    until(lambda: groups.group_names("sw") == ["sweep"], "the daemon has answered in the moment that completion waits")
    (found,) = groups.find_groups()
    assert repr(found).splitlines()[1].split() == ["sweep", "1", "1", "1", "open"]
    assert groups.change_group("sweep", at_most="none").at_most is None
    assert set(queue.select(group="sweep")) == {job.id for job in jobs}
    assert len(queue.stop(queue.select(group="sweep"), kill=True).jobs) == 2


@pytest.mark.usefixtures("command")
def test_a_job_changes_its_group_while_it_waits() -> None:
    job = gpusched.run(["true"], num_gpus=0, group="a", hold=True)
    job.edit(group="b")
    assert (job.status().group, job.rerun(hold=True).status().group) == ("b", "b")
    job.edit(group="none")
    assert job.status().group is None


@pytest.mark.usefixtures("command")
def test_wrong_arguments_of_groups_are_refused() -> None:
    for wrong in (0, -1, "0", "x", 1.5, True, [2]):
        with pytest.raises(UsageError, match="at_most"):
            groups.change_group("sweep", at_most=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nothing to change"):
        groups.change_group("sweep")
    with pytest.raises(UsageError, match="paused"):
        groups.change_group("sweep", paused="yes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="name"):
        groups.find_group("")
    with pytest.raises(UsageError, match="group"):
        queue.select(group=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--group: it is empty"):
        gpusched.run(["true"], group="")
