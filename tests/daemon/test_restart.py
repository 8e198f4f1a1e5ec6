import contextlib
import os
import random
import resource
import signal
import time
from pathlib import Path

import msgspec
import pytest

from gpusched.control.messages import ListJobs, Stop
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.guard_lock import guard_lock
from gpusched.model.status import JobState
from gpusched.storage.job import Job
from gpusched.storage.store import Store
from tests.daemon.daemons import Daemon
from tests.patience import PATIENCE_S, until

WORKED_ON = (JobState.STARTING, JobState.RUNNING)


def test_a_running_job_outlives_a_killed_daemon_and_is_found_again(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600")
    before = daemon.wait(job, JobState.RUNNING)
    until(lambda: daemon.job(job).replicas and daemon.job(job).replicas[0].pid, "the command runs")
    before = daemon.job(job)
    daemon.kill()
    daemon.start()
    after = daemon.job(job)
    assert (after.state, after.attempt) == (JobState.RUNNING, 0)
    assert after.supervisor_pid == before.supervisor_pid
    assert after.replicas[0].pid == before.replicas[0].pid
    daemon.ask(Stop(ids=(job,)))
    assert daemon.ended(job)[0].state is JobState.CANCELLED


def test_an_end_that_nobody_listened_to_is_told_later(daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.state / "gate"
    waits = f"while ! test -e {gate}; do sleep 0.05; done"
    good, bad = daemon.shell(waits), daemon.shell(f"{waits}; exit 7")
    for job in (good, bad):
        daemon.wait(job, JobState.RUNNING)
    daemon.kill()
    gate.touch()
    until(lambda: not [pid for pid in daemon.command.running() if is_ours(pid)], "the jobs are over")
    daemon.start()
    first, second = daemon.jobs(good, bad)
    assert (first.state, second.state) == (JobState.SUCCEEDED, JobState.FAILED)
    assert second.replicas[0].exit is not None
    assert second.replicas[0].exit.code == 7


def is_ours(pid: int) -> bool:
    try:
        return b"gpusched.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_no_job_is_lost_or_run_twice_however_often_the_daemon_is_killed(daemon: Daemon) -> None:
    """Each run of a job leaves a line; kill -9 comes at random moments while jobs are taken in and start."""
    dice = random.Random(11)  # noqa: S311
    runs = daemon.state / "runs"
    jobs: list[str] = []
    for _ in range(8):
        daemon.start()
        jobs += [daemon.shell(f'echo "$GPUSCHED_JOB" >> {runs}; exit {number}') for number in (0, 3)]
        time.sleep(dice.uniform(0.0, 0.8))
        daemon.kill()
    daemon.start()
    told = daemon.ended(*jobs)
    assert [job.state for job in told] == [JobState.SUCCEEDED, JobState.FAILED] * 8
    assert sorted(runs.read_text().split()) == sorted(jobs)


def test_what_was_submitted_is_there_after_a_kill_at_once(daemon: Daemon) -> None:
    daemon.start()
    jobs = [daemon.submit("true", hold=True) for _ in range(20)]
    daemon.kill()
    daemon.start()
    assert [job.id for job in daemon.jobs()] == jobs


def test_a_reboot_loses_what_ran_and_queues_again_what_may_be(daemon: Daemon) -> None:
    """The host was booted again: nothing of a job is left, and its status names another boot."""
    daemon.start()
    gone, again = daemon.submit("sleep", "600"), daemon.shell("test $GPUSCHED_ATTEMPT -gt 0 || sleep 600", requeue=True)
    waits = daemon.submit("true", hold=True)
    for job in (gone, again):
        daemon.wait(job, JobState.RUNNING)
        until(lambda: daemon.job(job).replicas[0].pid, "its command runs")  # noqa: B023
    statuses = {job: daemon.job(job) for job in (gone, again)}
    daemon.kill()
    daemon.command.end()
    until(lambda: not daemon.command.running(), "everything is gone")
    for job, status in statuses.items():
        other = msgspec.structs.replace(status, boot_id="another boot")
        JobDirectory(Path(status.run_dir)).write_status(other)
        assert job == other.id
    daemon.start()
    lost = daemon.job(gone)
    assert (lost.state, lost.message) == (JobState.LOST, "the host was booted again while it ran")
    (told,) = daemon.ended(again)
    assert (told.state, told.attempt) == (JobState.SUCCEEDED, 1)
    assert daemon.job(waits).state is JobState.QUEUED


@pytest.mark.parametrize("requeue", [False, True])
def test_a_job_whose_supervisor_and_guard_are_killed_is_lost(daemon: Daemon, requeue: bool) -> None:
    daemon.start()
    job = daemon.shell("test $GPUSCHED_ATTEMPT -gt 0 || sleep 600", requeue=requeue)
    daemon.wait(job, JobState.RUNNING)
    until(lambda: daemon.job(job).replicas[0].pid, "its command runs")
    for pid in daemon.command.running():
        if is_ours(pid):
            with contextlib.suppress(ProcessLookupError):  # one takes others along
                os.kill(pid, signal.SIGKILL)
    (told,) = daemon.ended(job)
    assert told.state is (JobState.SUCCEEDED if requeue else JobState.LOST)
    assert told.attempt == int(requeue)


def test_a_job_that_is_stopped_by_a_person_is_not_queued_again(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600", requeue=True)
    daemon.wait(job, JobState.RUNNING)
    daemon.ask(Stop(ids=(job,)))
    assert daemon.ended(job)[0].state is JobState.CANCELLED


def test_a_job_that_somebody_else_ends_from_outside_is_queued_again(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.shell("test $GPUSCHED_ATTEMPT -gt 0 || sleep 600", requeue=True)
    supervisor = daemon.wait(job, JobState.RUNNING).supervisor_pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGTERM)
    (told,) = daemon.ended(job)
    assert (told.state, told.attempt) == (JobState.SUCCEEDED, 1)


def test_a_stop_that_was_asked_for_is_not_forgotten_by_a_kill(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.shell("trap '' TERM; while :; do sleep 0.1; done", stop_grace_s=3.0, requeue=True)
    daemon.wait(job, JobState.RUNNING)
    daemon.ask(Stop(ids=(job,)))
    daemon.kill()
    daemon.start()
    assert daemon.ended(job)[0].state is JobState.CANCELLED


def test_a_launch_in_the_foreground_is_found_shown_and_stopped(daemon: Daemon) -> None:
    daemon.start()
    launch = daemon.command.start("launch", daemon.command.toy("for_ever.py"), "--machine", "1x16GiB")
    until(daemon.jobs, "the daemon finds it")
    (found,) = daemon.jobs()
    assert found.id == "toy-1"
    daemon.wait("toy-1", JobState.RUNNING)
    daemon.kill()
    daemon.start()
    daemon.wait("toy-1", JobState.RUNNING)
    daemon.ask(Stop(ids=("toy-1",)))
    assert daemon.ended("toy-1")[0].state is JobState.CANCELLED
    assert launch.wait(timeout=PATIENCE_S) == 130


def test_a_launch_that_is_found_before_its_supervisor_wrote_anything_has_the_time_that_it_ran(daemon: Daemon) -> None:
    daemon.start()
    launch = daemon.command.start("launch", daemon.command.toy("fails.py"), "--machine", "1x16GiB")
    client = daemon.client()
    while launch.poll() is None:  # the daemon looks for new directories each time
        client.ask(ListJobs())
    launch.communicate()

    (job,) = daemon.ended("toy-1")

    assert job.started is not None
    assert job.ended is not None
    assert job.created <= job.started <= job.ended


def test_a_launch_that_is_being_prepared_is_left_alone(daemon: Daemon) -> None:
    daemon.command.run("launch", daemon.command.toy("fails.py"), "--machine", "1x16GiB")
    next_one = JobDirectory(daemon.state / "jobs" / "toy-2")
    next_one.path.mkdir()
    next_one.spec.write_bytes((daemon.state / "jobs" / "toy-1" / "spec.json").read_bytes())
    with guard_lock(next_one) as descriptor:
        assert descriptor is not None
        os.write(descriptor, b"nonce")
        daemon.start()
        assert [job.id for job in daemon.jobs()] == ["toy-1"]
    assert [job.id for job in daemon.jobs()] == ["toy-1"]
    assert next_one.guard_lock.read_bytes() == b"nonce", "it may begin"


def test_a_launch_that_came_and_went_without_the_daemon_is_listed(daemon: Daemon) -> None:
    done = daemon.command.run("launch", daemon.command.toy("fails.py"), "--machine", "1x16GiB")
    assert done.returncode == 1
    daemon.start()
    (told,) = daemon.jobs()
    assert (told.id, told.state) == ("toy-1", JobState.FAILED)


def test_a_command_that_waits_goes_when_whoever_ran_it_does(daemon: Daemon) -> None:
    daemon.start()
    holder = daemon.command.start("run", "--machine", "1x16GiB", "--num-gpus", "1", "--", "sleep", "600")
    until(daemon.jobs, "it is submitted")
    daemon.wait("run-1", JobState.RUNNING)
    waiting = daemon.command.start("run", "--machine", "1x16GiB", "--num-gpus", "1", "--", "sleep", "600")
    until(lambda: len(daemon.jobs()) == 2, "the second is submitted")
    waiting.kill()
    assert daemon.ended("run-2")[0].state is JobState.CANCELLED
    holder.kill()
    assert daemon.ended("run-1")[0].state is JobState.CANCELLED


def test_a_full_disk_turns_jobs_away_while_what_runs_runs_on_and_is_told(daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.state / "gate"
    job, other = daemon.shell(f"while ! test -e {gate}; do sleep 0.05; done; exit 5"), daemon.submit("sleep", "600")
    for each in (job, other):
        daemon.wait(each, JobState.RUNNING)
    before = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, -1))
    with pytest.raises(HostFault, match=r"gpusched\.db"):
        daemon.submit("true")
    with pytest.raises(HostFault, match=r"gpusched\.db"):
        daemon.submit("true")
    assert daemon.pong().problems
    gate.touch()
    assert daemon.ended(job)[0].state is JobState.FAILED
    daemon.ask(Stop(ids=(other,)))
    assert daemon.ended(other)[0].state is JobState.CANCELLED
    assert [each.id for each in daemon.jobs()] == [other, job]
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, before)
    until(lambda: not daemon.pong().problems, "the database is written again")
    assert daemon.ended(daemon.submit("true"))[0].state is JobState.SUCCEEDED
    daemon.kill()
    daemon.start()
    assert daemon.job(job).state is JobState.FAILED


def test_ten_thousand_ended_jobs_hold_up_neither_a_start_nor_a_list(daemon: Daemon) -> None:
    daemon.state.mkdir()
    store = Store.open(daemon.state / "gpusched.db")
    with store.transaction():
        for number in range(1, 10_001):
            (daemon.state / "jobs" / f"run-{number}").mkdir(parents=True)
            store.add(
                Job(
                    id=f"run-{number}",
                    run_dir=str(daemon.state / "jobs" / f"run-{number}"),
                    created=float(number),
                    submission=daemon.submission("true"),
                    state=JobState.SUCCEEDED,
                    ended=float(number),
                )
            )
    store.close()
    daemon.start()
    assert len(daemon.jobs()) == 20
    assert daemon.submit("true") == "run-10001"


def test_a_submission_that_is_repeated_is_the_same_job_over_kills_and_ends(daemon: Daemon) -> None:
    daemon.start()
    first = daemon.submit("true", token="drawn by lot")
    daemon.ended(first)
    daemon.kill()
    daemon.start()

    assert daemon.submit("true", token="drawn by lot") == first
    assert daemon.submit("true", token="drawn anew") != first
    assert daemon.submit("true") != daemon.submit("true")
