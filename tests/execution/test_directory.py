import errno
import json
import multiprocessing
import os
import stat
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import HostFault
from gpusched.execution import read_jobs
from gpusched.execution.directory import JobDirectory, create, initial_status
from gpusched.execution.read_jobs import list_jobs
from gpusched.execution.reports import last_progress, parse_report
from gpusched.linux.file_locks import lock
from gpusched.linux.processes import boot_id, start_time
from gpusched.linux.regular_files import last_lines
from gpusched.model.status import ExitReason, JobState, JobStatus, ReplicaState
from gpusched.runtime import report_ready
from tests.patience import PATIENCE_S
from tests.supervisor.specs import job, replica


def running(directory: JobDirectory) -> JobStatus:
    """The status of a job whose supervisor is this very process."""
    spec = job(replica("learner.0", device="GPU-a"), replica("actor.0"))
    directory.write_spec(spec)
    status = msgspec.structs.replace(
        initial_status(directory, spec),
        state=JobState.RUNNING,
        supervisor_pid=os.getpid(),
        supervisor_start=start_time(os.getpid()),
        boot_id=boot_id(),
    )
    directory.write_status(status)
    return status


def create_together(state: Path, barrier: Barrier, names: "multiprocessing.Queue[str]") -> None:
    barrier.wait()
    names.put(create(state, "snake").path.name)


def test_twenty_creators_at_the_same_time_get_twenty_numbers(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    barrier, names = fork.Barrier(20), fork.Queue()
    creators = [fork.Process(target=create_together, args=(tmp_path, barrier, names)) for _ in range(20)]
    for creator in creators:
        creator.start()
    found = {names.get(timeout=PATIENCE_S) for _ in creators}
    for creator in creators:
        creator.join()
    assert found == {f"snake-{number}" for number in range(1, 21)}


def test_numbers_go_up_per_workload_and_other_names_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "snake-7").mkdir(parents=True)
    (tmp_path / "jobs" / "snake-big-9").mkdir()
    (tmp_path / "jobs" / "notes").mkdir()
    assert create(tmp_path, "snake").path.name == "snake-8"
    assert create(tmp_path, "snake-big").path.name == "snake-big-10"
    assert create(tmp_path, "towers").path.name == "towers-1"


def test_a_job_directory_is_for_its_owner_only(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    directory.write_spec(job(replica("actor.0")))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (directory.path, directory.logs, directory.spec)}
    assert list(modes.values()) == [0o700, 0o700, 0o600]


def test_a_state_directory_that_cannot_be_written_is_the_hosts_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostFault, match="cannot make a job's directory") as told:
        create(tmp_path / "file", "snake")
    assert "GPUSCHED_STATE_DIR" in told.value.hint


def test_spec_and_status_come_back_as_they_were_written(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    spec = job(replica("learner.0", device="GPU-a", env={"A": "b"}), leader="learner")
    directory.write_spec(spec)
    assert directory.read_spec() == spec
    status = running(directory)
    assert directory.read_status() == status


def test_a_broken_spec_names_the_file_and_the_key(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    directory.spec.write_text('{"id": 3}')
    with pytest.raises(HostFault, match=r"spec\.json.*\$\.id"):
        directory.read_spec()


def test_a_live_job_is_listed_with_its_last_whole_line_of_progress(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    running(directory)
    directory.progress.write_text('{"score": 1.5}\n{"score": 2.5}\n{"score": 9')
    (listed,) = list_jobs(tmp_path)
    assert (listed.state, listed.progress) == (JobState.RUNNING, {"score": 2.5})


def test_a_job_whose_supervisor_is_gone_is_lost(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    status = running(directory)
    for wrong in ({"supervisor_start": 1}, {"boot_id": "another"}, {"supervisor_pid": 2**22 + 1}):
        directory.write_status(msgspec.structs.replace(status, **wrong))
        (listed,) = list_jobs(tmp_path)
        assert listed.state is JobState.LOST
        assert listed.message is not None
        assert {(one.state, one.exit) for one in listed.replicas} == {(ReplicaState.EXITED, ExitReason(kind="lost"))}


def test_a_finished_job_needs_no_living_supervisor(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    directory.write_status(msgspec.structs.replace(running(directory), state=JobState.SUCCEEDED, supervisor_start=1))
    assert [one.state for one in list_jobs(tmp_path)] == [JobState.SUCCEEDED]


def test_a_job_that_ends_while_it_is_looked_at_is_not_lost(tmp_path: Path) -> None:
    last = msgspec.structs.replace(running(create(tmp_path, "snake")), state=JobState.SUCCEEDED)
    said = [last, msgspec.structs.replace(last, state=JobState.RUNNING, supervisor_start=1)]

    class Ending(JobDirectory):
        def read_status(self) -> JobStatus:
            return said.pop()

    assert read_jobs._checked(Ending(tmp_path)).state is JobState.SUCCEEDED


def test_a_job_that_starts_is_queued_and_lost_if_it_never_does(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    assert list_jobs(tmp_path) == ()
    spec = job(replica("actor.0", device="GPU-a"))
    directory.write_spec(spec)
    assert [one.state for one in list_jobs(tmp_path)] == [JobState.QUEUED]
    late = spec.prepared_s - read_jobs.START_PATIENCE_S - 1
    directory.write_spec(msgspec.structs.replace(spec, prepared_s=late))
    assert [one.state for one in list_jobs(tmp_path)] == [JobState.LOST]


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_job_that_starts_amid_a_step_of_the_clock_is_queued(tmp_path: Path, step_s: int) -> None:
    directory = create(tmp_path, "snake")
    directory.write_spec(job(replica("actor.0", device="GPU-a")))
    stepped = time.time() - step_s
    os.utime(directory.spec, (stepped, stepped))
    assert [one.state for one in list_jobs(tmp_path)] == [JobState.QUEUED]


def test_a_job_that_an_earlier_boot_of_the_host_should_have_started_is_lost(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    spec = job(replica("actor.0", device="GPU-a"))
    directory.write_spec(msgspec.structs.replace(spec, prepared_s=spec.prepared_s + 1000))
    assert [one.state for one in list_jobs(tmp_path)] == [JobState.LOST]


def test_an_unreadable_status_is_told_and_hides_no_other_job(tmp_path: Path) -> None:
    running(create(tmp_path, "snake"))
    broken = create(tmp_path, "snake")
    running(broken)
    broken.status.write_text("{")
    found = {one.id: one for one in list_jobs(tmp_path)}
    assert found["snake-1"].state is JobState.RUNNING
    assert found["snake-2"].state is JobState.LOST
    assert "status.json" in str(found["snake-2"].message)


def test_no_jobs_where_there_is_no_state_directory_yet(tmp_path: Path) -> None:
    assert list_jobs(tmp_path / "nothing") == ()


@pytest.mark.parametrize("content", [None, "", "\n", "[1]\n", "nonsense\n", "[" * 50_000 + "\n", '{"half": 1'])
def test_progress_that_is_no_progress_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "progress.jsonl"
    if content is not None:
        path.write_text(content)
    assert last_progress(path) is None


def test_progress_is_read_from_the_end_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(20_000)))
    assert last_progress(path) == {"step": 19_999}


def test_a_failed_save_leaves_the_old_status_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = create(tmp_path, "snake")
    status = running(directory)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        directory.write_status(msgspec.structs.replace(status, state=JobState.FAILED))
    assert directory.read_status() == status


def test_a_status_is_written_over_the_old_one_only_where_that_has_the_room(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    status = running(directory)
    failed = msgspec.structs.replace(status, state=JobState.FAILED, replicas=())
    assert directory.overwrite_status(failed)
    assert directory.read_status() == failed
    assert not directory.overwrite_status(msgspec.structs.replace(status, message="x" * 100_000))
    assert directory.read_status() == failed


def test_one_job_that_cannot_be_looked_into_hides_no_other(tmp_path: Path) -> None:
    running(create(tmp_path, "snake"))
    (tmp_path / "jobs" / "snake-7").symlink_to("x" * 300)  # any access fails, for root as well
    broken = create(tmp_path, "snake")
    broken.spec.write_text("{}")
    broken.status.write_text("[[")
    odd = create(tmp_path, "snake")
    odd.spec.write_text("{}")
    odd.status.write_bytes(b'{"id": "\xff"}')

    found = {job.id: job for job in list_jobs(tmp_path)}

    assert {name: job.state for name, job in found.items()} == {
        "snake-1": JobState.RUNNING,
        "snake-7": JobState.LOST,
        "snake-8": JobState.LOST,
        "snake-9": JobState.LOST,
    }
    assert all(time.time() - found[name].created < 60 for name in ("snake-7", "snake-8", "snake-9")), (
        "recent enough to be seen"
    )


def test_jobs_that_ended_long_ago_may_be_left_out_and_none_that_lives_is(tmp_path: Path) -> None:
    long_ago = time.time() - 100_000
    for ended in (False, True, True):
        directory = create(tmp_path, "snake")
        status = running(directory)
        if ended:
            directory.clear_tmp()
            directory.write_status(msgspec.structs.replace(status, state=JobState.SUCCEEDED))
    for name in ("snake-1", "snake-2"):
        os.utime(tmp_path / "jobs" / name, (long_ago, long_ago))
    assert len(list_jobs(tmp_path)) == 3
    assert [job.run_dir.rpartition("/")[2] for job in list_jobs(tmp_path, time.time() - 3600)] == ["snake-1", "snake-3"]


def test_a_job_that_removed_its_tmp_long_ago_is_listed_while_its_guard_lives(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    running(directory)
    directory.clear_tmp()
    with directory.guard_lock.open("wb") as guard:
        assert lock(guard.fileno(), 0)
        os.utime(directory.path, (0, 0))
        assert [one.state for one in list_jobs(tmp_path, time.time())] == [JobState.RUNNING]
    assert list_jobs(tmp_path, time.time()) == ()


def test_a_job_whose_guard_lives_is_not_lost_however_late_its_supervisor_is(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    directory.write_spec(msgspec.structs.replace(job(replica("actor.0")), prepared_s=0.0))
    with directory.guard_lock.open("wb") as guard:
        assert lock(guard.fileno(), 0), "as a guard does that is about to start the supervisor"
        assert [each.state for each in list_jobs(tmp_path)] == [JobState.QUEUED]
    assert [each.state for each in list_jobs(tmp_path)] == [JobState.LOST]


def test_the_end_of_a_log_is_read_without_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "actor.0.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte that takes no room
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast but one\nthe last \xff\n")

    assert last_lines(log, 2) == ["last but one", "the last \ufffd"]
    assert last_lines(tmp_path / "none.log", 2) == []


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b'{"score": NaN, "step": 1e999}', {"score": None, "step": None}),
        (b"[1]", None),
        (b"[" * 100_000, None),
        (b"\xff", None),
        (b'{"name": "\\ud800"}', None),
        (b'{"step": 100000000000000000000}', None),
    ],
)
def test_a_report_holds_nothing_that_json_and_msgpack_have_not(line: bytes, report: object) -> None:
    assert parse_report(line) == report


def with_process(status: JobStatus, name: str, *, restarts: int = 0) -> JobStatus:
    replicas = tuple(
        msgspec.structs.replace(one, state=ReplicaState.RUNNING, pid=1, started=time.time(), restarts=restarts)
        if one.name == name
        else one
        for one in status.replicas
    )
    return msgspec.structs.replace(status, replicas=replicas)


def say_ready(directory: JobDirectory, replica: str, attempt: int = 0) -> None:
    environ = {"JOB": "a", "ROLE": "b", "RANK": "0", "ROLE_COUNT": "1", "ENDPOINT": "", "ATTEMPT": str(attempt)}
    environ |= {"REPLICA": replica, "RUN_DIR": str(directory.path)}
    report_ready({f"GPUSCHED_{name}": value for name, value in environ.items()})


def ready_replicas(directory: JobDirectory) -> list[str]:
    return [one.name for one in read_jobs.read_job(directory.path).replicas if one.ready is not None]


def test_a_replica_is_ready_when_its_process_has_said_so(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    directory.write_status(with_process(running(directory), "actor.0"))
    assert ready_replicas(directory) == []
    before = time.time()
    say_ready(directory, "actor.0")
    [learner, actor] = read_jobs.read_job(directory.path).replicas
    assert learner.ready is None
    assert actor.ready == pytest.approx(before, abs=5)


def test_a_replica_that_is_started_again_is_not_ready_until_it_says_so_anew(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    status = running(directory)
    directory.write_status(with_process(status, "actor.0"))
    say_ready(directory, "actor.0")
    directory.write_status(status)  # it has no process now
    assert ready_replicas(directory) == []
    directory.write_status(with_process(status, "actor.0", restarts=1))
    assert ready_replicas(directory) == []
    say_ready(directory, "actor.0", attempt=1)
    assert ready_replicas(directory) == ["actor.0"]


def test_what_an_earlier_attempt_of_the_job_left_makes_nobody_ready(tmp_path: Path) -> None:
    directory = create(tmp_path, "snake")
    say_ready(directory, "actor.0", attempt=1)
    started_again = msgspec.structs.replace(running(directory), attempt=1, started=time.time() + 1)
    directory.write_status(with_process(started_again, "actor.0"))
    assert ready_replicas(directory) == []
