"""launch: a job that this process starts, watches, reads and ends, and that ends with it."""

import signal
import subprocess
import threading
from collections.abc import Callable

import pytest

import gpusched
from gpusched.api import launching
from gpusched.errors import GpuschedError, HostFault, NotFound, NotNow, TimedOut, UsageError
from gpusched.execution import prepare
from gpusched.execution.directory import JobDirectory
from gpusched.execution.guard_lock import has_begun
from gpusched.execution.read_jobs import list_jobs
from gpusched.leases.directory import lease_directory
from gpusched.settings import load_settings
from tests.api.session import Session
from tests.cli.command import Command
from tests.patience import until

M = "1x16GiB"


def leases(command: Command) -> int:
    return len(lease_directory(load_settings(command.env), simulated=True).read())


def test_a_launched_job_is_watched_read_stopped_and_waited_for(command: Command) -> None:
    job = gpusched.launch(command.toy("reports.py"), machine=M)

    until(lambda: (job.status().progress or {}).get("score") == 7.5, "the learner's report is seen")
    until(lambda: len(list(job.logs())) == 9, "all three have written, under a line of the start of each")
    until(lambda: job.status().state == "running", "all are ready")
    assert (job.id, job.why) == ("toy-1", None)
    assert list(job.logs("actor.1"))[1:] == ["first line", "<b>last</b> line"]
    assert list(job.logs("actor.1", lines=1)) == ["<b>last</b> line"]
    assert "learner.0 | first line" in list(job.logs())
    assert leases(command) == 3
    job.stop()
    assert job.wait().state == "cancelled"
    assert "cancelled" in str(job)
    until(lambda: not command.running() and not leases(command), "no process and no lease left")


def test_following_yields_all_lines_and_ends_with_the_job(command: Command) -> None:
    job = gpusched.launch(command.toy("reports.py"), machine=M)
    lines = job.logs("learner.0", follow=True)

    heading = next(lines)
    (job.run_dir / "end").touch()

    assert heading.startswith("--- learner.0, attempt 0")
    assert list(lines) == ["first line", "<b>last</b> line"]
    assert job.status().state == "succeeded"
    assert [status.state for status in job.watch(0.01)] == ["succeeded"]


def test_each_report_of_the_learner_is_seen_once_and_as_it_comes(command: Command) -> None:
    job = gpusched.launch(command.toy("learns.py"), machine=M)
    reports = job.progress(every=0.02)

    for score in range(3):
        (job.run_dir / "next").touch()
        report = next(reports)
        assert (report["step"], report["score"]) == (100 * score, score)
        assert isinstance(report["time"], float)

    job.stop()
    assert list(reports) == []
    assert [report["score"] for report in gpusched.job(job.id).progress()] == [0, 1, 2]


def test_a_moment_has_what_a_view_shows_and_a_game_only_if_it_is_wanted(command: Command) -> None:
    job = gpusched.launch(command.toy("learns.py"), machine=M)
    plain = next(job.moments())
    assert (plain.status.id, list(plain.reports), plain.frame) == (job.id, [], "")
    assert not (job.run_dir / "watched").exists()

    scores: list[object] = []
    for moment in job.moments(0.02, frames=True):
        scores += [report["score"] for report in moment.reports]
        drawn = moment.frame.removeprefix("game ")
        if drawn.isdigit() and int(drawn) >= 3:  # on a busy host more than one is drawn between two moments
            break
        (job.run_dir / "next").touch()

    assert moment.frame == f"game {drawn}"
    assert scores == list(range(len(scores)))
    job.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("command")
def test_snake_is_launched_its_score_seen_to_rise_and_stopped() -> None:
    job = gpusched.launch("snake", procs=2, options={"network": "small", "games": 32, "minutes": 10}, machine=M)
    first = 0.0
    for report in job.progress(every=0.2):
        score = report.get("score")
        if isinstance(score, float):
            first = first or score
            if score > first + 0.05:  # a fruit more in 20 games than at random
                break

    job.stop()

    assert job.wait().state == "cancelled"


def test_a_job_outlives_the_thread_that_launched_it(command: Command) -> None:
    jobs: list[gpusched.Job] = []
    workload = command.toy("reports.py")
    thread = threading.Thread(target=lambda: jobs.append(gpusched.launch(workload, machine=M)))
    thread.start()
    thread.join()

    (jobs[0].run_dir / "end").touch()

    assert jobs[0].wait().state == "succeeded"


def test_waiting_for_a_launched_job_times_out_and_the_job_goes_on(command: Command) -> None:
    job = gpusched.launch(command.toy("for_ever.py"), machine=M)

    with pytest.raises(TimedOut) as caught:
        job.wait(timeout=0)

    assert isinstance(caught.value, TimeoutError)
    assert job.status().state in {"starting", "running"}
    job.stop(kill=True)
    job.wait()
    job.stop()  # of a job that has ended it changes nothing


def test_what_does_not_fit_now_is_not_now_and_leaves_nothing(command: Command) -> None:
    workload = command.toy("for_ever.py")
    gpusched.launch(workload, machine=M, learner_memory="10GiB")
    held = leases(command)

    with pytest.raises(NotNow):
        gpusched.launch(workload, machine=M, learner_memory="10GiB")

    assert leases(command) == held
    assert [job.id for job in gpusched.jobs(ended=5)] == ["toy-1"]


def test_a_launched_job_waits_in_no_queue_so_it_cannot_be_held(command: Command) -> None:
    job = gpusched.launch(command.toy("for_ever.py"), machine=M)

    for change in (job.hold, job.release):
        with pytest.raises(GpuschedError):
            change()
    with pytest.raises(NotFound, match=r"actor\.9"):
        job.logs("actor.9")


def test_another_handle_of_a_launched_job_does_the_same(command: Command) -> None:
    gpusched.launch(command.toy("for_ever.py"), machine=M)

    other = gpusched.job("toy-1")
    until(lambda: gpusched.jobs(state="running") == [other], "it is listed as running")
    other.stop()

    assert other.wait().state == "cancelled"
    assert gpusched.jobs(state="running") == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, HostFault])
def test_a_launch_that_is_interrupted_leaves_nothing_that_runs(
    error: type[BaseException], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        until(lambda: command.job().get("supervisor_pid"), "the supervisor is up")
        raise error("interrupted")

    monkeypatch.setattr(prepare, "await_supervisor", interrupt)

    with pytest.raises(error):
        gpusched.launch(command.toy("for_ever.py"), machine=M)

    until(lambda: not command.running() and not leases(command), "no process and no lease left")


def spawned(_: JobDirectory) -> bool:
    return True


def guarded(directory: JobDirectory) -> bool:
    return directory.is_guarded()


@pytest.mark.parametrize("moment", [spawned, guarded, has_begun])
def test_a_launch_that_is_interrupted_before_its_supervisor_is_up_leaves_nothing_that_runs(
    moment: Callable[[JobDirectory], bool], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(directory: JobDirectory, *_: object) -> int:
        while not moment(directory):  # no pause: the supervisor is up soon after
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "await_supervisor", interrupt)

    with pytest.raises(KeyboardInterrupt):
        gpusched.launch(command.toy("for_ever.py"), machine=M)

    until(lambda: not command.running() and not leases(command), "no process and no lease left")
    assert [job.state for job in list_jobs(command.state)] in ([], ["cancelled"])


def test_a_reserved_job_holds_its_devices_until_it_is_cancelled(command: Command) -> None:
    prepared = launching.prepare(command.toy("for_ever.py"), machine=M, learner_memory="10GiB")
    reserved = prepared.reserve()
    assert (leases(command), list(reserved.plan.counts), prepared.notices) == (3, [3], ())
    with pytest.raises(NotNow):
        prepared.start()

    reserved.cancel()

    assert not leases(command)
    assert not list((command.state / "jobs").iterdir())
    again = prepared.reserve()
    job = again.start()
    with pytest.raises(UsageError, match="has been started"):
        again.cancel()
    assert (job.status().state in {"starting", "running"}, leases(command)) == (True, 3)


@pytest.mark.usefixtures("command")
def test_what_belongs_to_the_queue_is_refused_of_a_job_that_starts_now() -> None:
    with pytest.raises(UsageError, match="--after and --time-limit and --hold belongs to a job in the queue"):
        launching.prepare("averaging", machine=M, time_limit="2h", hold=True, after="run-1").start()
    with pytest.raises(UsageError, match="--priority belongs to a job in the queue"):
        gpusched.join("tcp://127.0.0.1:1", insecure=True, priority=3)


@pytest.mark.usefixtures("command")
def test_what_was_prepared_for_later_or_never_does_not_start() -> None:
    later, never = (launching.prepare("averaging", machine=M, begins=begins) for begins in ("later", "never"))

    for refused in (later.start, later.reserve, never.start, never.submit, never.submission):
        with pytest.raises(UsageError, match="it was not checked for this"):
            refused()
    with pytest.raises(UsageError, match="begins: 'soon'"):
        launching.prepare("averaging", machine=M, begins="soon")  # type: ignore[arg-type]


def test_a_launched_job_has_what_a_person_should_know_of_its_plan(command: Command) -> None:
    job = gpusched.launch(command.toy("for_ever.py"), machine=M)

    assert [one for one in job.warnings if one.startswith("the command of role learner has python's")]
    assert gpusched.job(job.id).warnings == ()


def as_soon_as_it_runs(command: Command, _: "subprocess.Popen[str]") -> None:
    until(lambda: command.job().get("state") == "running", "it runs")


def amid_its_start(command: Command, _: "subprocess.Popen[str]") -> None:
    until(lambda: list(command.state.glob("jobs/toy-1/*")), "its directory is there")


def while_it_plans(command: Command, _: "subprocess.Popen[str]") -> None:
    until((command.state / "jobs").exists, "the directory of jobs is there")


@pytest.mark.parametrize("moment", [as_soon_as_it_runs, amid_its_start, while_it_plans])
def test_a_session_killed_at_any_moment_leaves_no_process_and_no_lease(
    moment: Callable[[Command, "subprocess.Popen[str]"], None], command: Command, session: Session
) -> None:
    process = session.start(f"gpusched.launch({command.toy('for_ever.py')!r}, machine={M!r}).wait()")
    moment(command, process)

    process.send_signal(signal.SIGKILL)
    process.wait()

    until(lambda: not command.running() and not leases(command), "no process and no lease left")


def test_a_session_that_just_ends_ends_its_job(command: Command, session: Session) -> None:
    printed = session.run(f"print(gpusched.launch({command.toy('for_ever.py')!r}, machine={M!r}).id)")

    assert printed == "toy-1\n"
    until(lambda: not command.running() and not leases(command), "no process and no lease left")


def test_the_end_of_a_launched_job_leaves_no_zombie(command: Command, session: Session) -> None:
    code = f"""
        from pathlib import Path
        import threading
        job = gpusched.launch({command.toy("reports.py")!r}, machine={M!r})
        children = Path("/proc/self/task").glob("*/children")
        print(len("".join(file.read_text() for file in children).split()))
        (job.run_dir / "end").touch()
        job.wait()
        for thread in threading.enumerate():
            if thread.name.startswith("reap-"):
                thread.join()
        children = Path("/proc/self/task").glob("*/children")
        print(len("".join(file.read_text() for file in children).split()))
    """

    assert session.run(code).split() == ["1", "0"]
