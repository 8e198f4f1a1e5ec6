"""A job with --requeue that was ended from outside has not ended: it is queued again."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from gpusched.execution.directory import JobDirectory
from gpusched.linux.processes import parent
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.held import held_still
from tests.patience import until

AGAIN = "test $GPUSCHED_ATTEMPT -gt 0 || exec sleep 600"


@contextmanager
def between_end_and_queue(daemon: Daemon, **changes: object) -> Iterator[str]:
    """Give a job that its supervisor has ended, while its guard is held, so that nothing goes on with it."""
    job = daemon.shell(AGAIN, **changes)
    supervisor = daemon.wait(job, JobState.RUNNING).supervisor_pid
    assert supervisor is not None
    guard = parent(supervisor)
    assert guard is not None
    with held_still(guard):
        os.kill(supervisor, signal.SIGTERM)
        status = JobDirectory(daemon.state / "jobs" / job).status
        until(lambda: json.loads(status.read_text())["state"] == "cancelled", "its supervisor has ended it")
        yield job


def test_a_job_is_stopping_between_its_end_from_outside_and_its_place_in_the_queue(daemon: Daemon) -> None:
    daemon.start()
    with between_end_and_queue(daemon, requeue=True) as job:
        assert daemon.job(job).state is JobState.STOPPING
        waited = daemon.command.run("wait", job, "--timeout", "0")
        assert (waited.returncode, waited.stdout) == (1, "")
        assert f"{job} is stopping" in waited.stderr

    (over,) = daemon.ended(job)
    assert (over.state, over.attempt) == (JobState.SUCCEEDED, 1)


def test_a_job_that_is_not_queued_again_has_ended_when_its_supervisor_says_so(daemon: Daemon) -> None:
    daemon.start()
    with between_end_and_queue(daemon, requeue=False) as job:
        assert daemon.job(job).state is JobState.CANCELLED
    assert daemon.ended(job)[0].state is JobState.CANCELLED
