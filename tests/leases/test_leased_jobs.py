"""A job and its lease: started once and only on what is still granted, freed when its processes are gone."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from gpusched.errors import HostFault
from gpusched.execution.guard_lock import has_begun, read_nonce
from gpusched.execution.lease_usage import current_leases
from gpusched.execution.start import await_supervisor, cancel_start, prepare, spawn, write_environ
from gpusched.leases.directory import LeaseDirectory, LeaseHandle
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import holders, shares_used
from gpusched.model.status import JobState, ReplicaState
from tests.patience import PATIENCE_S, until
from tests.supervisor.host import Host, Job, start
from tests.supervisor.leasing import committer, held, share
from tests.supervisor.specs import python, replica

STAY = ("sleep", "1000")
HELD = [("actor.0", "GPU-a", 1450)]


@pytest.fixture
def leases(tmp_path: Path) -> LeaseDirectory:
    return LeaseDirectory(tmp_path / "leases")


def commit(leases: LeaseDirectory, one: Job) -> LeaseHandle:
    with leases.locked():
        return leases.commit(one.directory.path.name, [share(1450)], one.directory.path)


def ready(host: Host, leases: LeaseDirectory, argv: tuple[str, ...] = STAY) -> tuple[Job, LeaseHandle]:
    """A job that is leased and not started yet."""
    one = host.prepare(replica("actor.0", argv, device="GPU-a"))
    return one, commit(leases, one)


def leased(host: Host, leases: LeaseDirectory, argv: tuple[str, ...] = STAY) -> Job:
    """A job that runs on its lease, which the committer has let go of."""
    one, hold = ready(host, leases, argv)
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    hold.release()
    return one


def attempt(host: Host, one: Job, nonce: str) -> int:
    """Start a guard and return its exit code, when it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(spawn(one.directory, nonce, host.environ(one)), 0)[1])


def nothing_ran(one: Job, why: str) -> None:
    assert one.pids() == []
    assert not one.directory.status.exists()
    assert not one.directory.log("actor.0").exists()
    assert why in one.directory.supervisor_log.read_text()


def test_a_job_holds_its_lease_by_itself_and_leaves_no_file(host: Host, leases: LeaseDirectory) -> None:
    one = leased(host, leases)
    assert held(leases) == HELD
    assert leases.read()[0].guard == one.guard()
    one.wait_running("actor.0")
    one.stop()
    one.wait_gone()
    assert [path.name for path in leases.path.iterdir()] == ["lock"]


def test_the_share_of_a_replica_that_has_ended_for_good_is_free_while_the_job_goes_on(
    host: Host, leases: LeaseDirectory
) -> None:
    one = host.prepare(replica("actor.0", STAY, device="GPU-a"), replica("quick.0", ("true",), device="GPU-a"))
    with leases.locked():
        hold = leases.commit(one.directory.path.name, [share(1450), share(1450, "quick.0")], one.directory.path)
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    hold.release()
    until(lambda: held(leases) == HELD, "only the actor's share is left")


@pytest.mark.parametrize("others", [(), (("actor.1", STAY),)], ids=["at the end of the job", "while it goes on"])
def test_a_share_is_held_until_what_fled_from_its_replica_has_ended(
    host: Host, leases: LeaseDirectory, tmp_path: Path, others: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    """It may have memory of the device: whoever were granted the share before its end would find too little."""
    gate = tmp_path / "gate"
    deaf = tmp_path / "deaf"
    stray = f"trap '' TERM; touch {deaf}; while ! test -e {gate}; do sleep 0.05; done"
    fled = ("sh", "-c", f'setsid sh -c "{stray}" & until test -e {deaf}; do sleep 0.05; done')
    replicas = [replica(name, argv, device="GPU-a") for name, argv in (("actor.0", fled), *others)]
    one = host.prepare(*replicas, stop_grace_s=600.0)
    with leases.locked():
        hold = leases.commit(one.directory.path.name, [share(1450)], one.directory.path)
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    hold.release()
    until(lambda: one.replica("actor.0").state is ReplicaState.EXITED, "the replica has ended")
    until(lambda: others != () or one.status.state is JobState.STOPPING, "the job waits for what is left")
    assert held(leases) == HELD

    gate.touch()
    until(lambda: held(leases) == [], "the share is free")


def test_a_grant_that_has_lapsed_starts_nothing(host: Host, leases: LeaseDirectory) -> None:
    one = host.prepare(replica("actor.0", STAY, device="GPU-a"))
    with committer(leases, one.directory.path) as process:
        nonce = prepare(one.directory, one.directory.read_spec())
        process.kill()
    assert attempt(host, one, nonce) == 5
    nothing_ran(one, "has lapsed: its committer has ended")
    assert leases.read() == ()
    assert not has_begun(one.directory)


def test_a_lapsed_grant_that_was_cleared_up_starts_nothing(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases)
    hold.rollback()
    assert attempt(host, one, prepare(one.directory, one.directory.read_spec())) == 5
    nothing_ran(one, "is gone: its committer has ended or has withdrawn it")


def test_a_guard_waits_for_who_plans_before_it_takes_its_lease(host: Host, leases: LeaseDirectory) -> None:
    """Who plans has read that the committer lives: the lease must not pass on, or lapse, at the same time."""
    one, hold = ready(host, leases)
    nonce = prepare(one.directory, one.directory.read_spec())
    with leases.locked():
        guard = spawn(one.directory, nonce, host.environ(one))
        until(one.directory.is_guarded, "the guard has the job")
        hold.release()  # as if the committer had been killed
        assert leases.read() == (), "so it is planned on"
    assert os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1]) == 5
    nothing_ran(one, "is gone: its committer has ended")


def test_a_lease_outlives_its_guard_until_the_processes_are_gone(host: Host, leases: LeaseDirectory) -> None:
    one = leased(host, leases, python("ignore_term.py"))
    one.wait_output("actor.0", "deaf\n")
    pid = one.wait_running("actor.0")
    os.kill(one.guard(), signal.SIGKILL)
    while leases.read():
        pass
    assert not Path(f"/proc/{pid}").exists()
    one.wait_gone()


@pytest.mark.parametrize("victims", ["supervisor", "guard and supervisor"])
def test_a_killed_supervisor_frees_the_lease(host: Host, leases: LeaseDirectory, victims: str) -> None:
    one = leased(host, leases)
    one.wait_running("actor.0")
    guard = one.guard()
    os.kill(one.supervisor, signal.SIGKILL)
    if victims != "supervisor":
        with contextlib.suppress(ProcessLookupError):  # it may have seen the end already
            os.kill(guard, signal.SIGKILL)
    until(lambda: leases.read() == (), "the lease is free")
    one.wait_gone()
    with leases.locked():
        leases.read()
    assert [path.name for path in leases.path.iterdir()] == ["lock"]


@pytest.fixture
def freezer(host: Host) -> Iterator[Path]:
    """A cgroup whose processes not even SIGKILL ends while they are frozen, as those that wait for a broken disk."""
    group = Path(f"/sys/fs/cgroup/freezer/gpusched-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"making a cgroup of version 1 is not allowed here: {error}")
    yield group
    (group / "freezer.state").write_text("THAWED")
    host.end()
    until(lambda: not (group / "cgroup.procs").read_text(), "the cgroup is empty")
    group.rmdir()


def switches(pid: int) -> int:
    """How often a process has gone to sleep."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


HURRIED_GUARD = """
import sys
from gpusched.supervisor import guard, leftovers, process
leftovers._PATIENCE_S = process._KILL_PATIENCE_S = 0.01
sys.exit(guard.guard(*sys.argv[1:]))
"""


@contextlib.contextmanager
def with_a_process_that_cannot_be_killed(
    host: Host, leases: LeaseDirectory, freezer: Path, log: Path
) -> Iterator[tuple[Job, "subprocess.Popen[bytes]"]]:
    """A job with a guard that does not wait for long, and writes to `log`. At the end what it forked can be killed."""
    one, hold = ready(host, leases, ("sh", "-c", "sleep 1000 & wait"))
    nonce = prepare(one.directory, one.directory.read_spec())
    argv = [sys.executable, "-c", HURRIED_GUARD, str(one.directory.path), nonce]
    with log.open("wb") as stream:
        guard = subprocess.Popen(argv, env=host.environ(one), stderr=stream, start_new_session=True)
    replica = psutil.Process(one.wait_running("actor.0"))
    hold.release()
    until(replica.children, "it has forked")
    (freezer / "cgroup.procs").write_text(str(replica.children()[0].pid))
    (freezer / "freezer.state").write_text("FROZEN")
    until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
    yield one, guard
    (freezer / "freezer.state").write_text("THAWED")


def supervisor_of(one: Job) -> int:
    pid = one.status.supervisor_pid
    assert pid is not None
    return pid


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_a_guard_never_gives_up_what_it_cannot_kill_and_keeps_the_lease(
    host: Host, leases: LeaseDirectory, freezer: Path, tmp_path: Path, *, disk_is_full: bool
) -> None:
    log = Path("/dev/full") if disk_is_full else tmp_path / "log"
    with with_a_process_that_cannot_be_killed(host, leases, freezer, log) as (one, guard):
        supervisor = supervisor_of(one)
        os.kill(supervisor, signal.SIGSTOP)
        until(
            lambda: psutil.Process(supervisor).status() != psutil.STATUS_STOPPED, "its guard has it go on, and says so"
        )
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: disk_is_full or "cannot be killed yet" in log.read_text(), "the guard says so")
        until(lambda: one.status.state is JobState.LOST, "it is lost")
        before = switches(guard.pid)
        until(lambda: switches(guard.pid) > before + 20, "it has tried again and again")
        assert held(leases) == HELD

    assert guard.wait(PATIENCE_S) == 1
    assert leases.read() == ()
    assert one.pids() == []


def test_a_supervisor_whose_guard_is_gone_keeps_the_lease_until_all_are_killed(
    host: Host, leases: LeaseDirectory, freezer: Path, tmp_path: Path
) -> None:
    with with_a_process_that_cannot_be_killed(host, leases, freezer, tmp_path / "log") as (one, guard):
        supervisor = supervisor_of(one)
        guard.kill()
        guard.wait()
        assert one.wait_ended().state is JobState.LOST
        before = switches(supervisor)
        until(lambda: switches(supervisor) > before + 20, "it has tried again and again")
        assert held(leases) == HELD

    one.wait_gone()
    until(lambda: leases.read() == (), "the lease is free")


def test_an_attempt_that_was_called_off_is_never_started(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases)
    nonce = prepare(one.directory, one.directory.read_spec())
    assert read_nonce(one.directory) == nonce
    assert cancel_start(one.directory)
    assert attempt(host, one, nonce) == 5
    nothing_ran(one, "was called off")
    assert not has_begun(one.directory)
    hold.rollback()


def test_a_guard_without_a_nonce_starts_nothing_of_an_attempt_that_was_called_off(
    host: Host, leases: LeaseDirectory
) -> None:
    one, hold = ready(host, leases)
    prepare(one.directory, one.directory.read_spec())
    assert cancel_start(one.directory)

    assert attempt(host, one, read_nonce(one.directory)) == 5
    assert not has_begun(one.directory)
    hold.rollback()


def test_no_attempt_is_started_twice(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases, ("true",))
    spec = one.directory.read_spec()
    nonce = prepare(one.directory, spec)
    assert attempt(host, one, nonce) == 0
    assert has_begun(one.directory)
    assert read_nonce(one.directory) == ""
    hold.release()
    again = commit(leases, one)
    assert attempt(host, one, nonce) == 5
    assert one.output("actor.0").count("attempt 0") == 1
    again.rollback()


def test_a_job_that_runs_can_be_neither_started_nor_called_off(host: Host, leases: LeaseDirectory) -> None:
    one = leased(host, leases)
    assert one.directory.is_guarded()
    assert not cancel_start(one.directory)
    with pytest.raises(HostFault, match="still runs"):
        prepare(one.directory, one.directory.read_spec())
    assert held(leases) == HELD
    one.stop()
    until(lambda: not one.directory.is_guarded(), "the guard has ended")
    assert cancel_start(one.directory)
    assert has_begun(one.directory), "calling off does not make it not have been"


def test_two_guards_of_one_attempt_start_it_once(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases, ("true",))
    nonce = prepare(one.directory, one.directory.read_spec())
    guards = [spawn(one.directory, nonce, host.environ(one)) for _ in range(5)]
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1]) for guard in guards)
    assert codes == [0, 5, 5, 5, 5]
    assert one.output("actor.0").count("attempt 0") == 1
    hold.release()


def test_a_next_attempt_begins_with_nothing_of_the_last_ones_status(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases, ("false",))
    spec = one.directory.read_spec()
    await_supervisor(one.directory, spawn(one.directory, prepare(one.directory, spec), host.environ(one)), spec)
    hold.release()
    assert one.wait_ended().state is JobState.FAILED
    until(lambda: not one.directory.is_guarded(), "the guard has ended")
    hold = commit(leases, one)
    again = msgspec.structs.replace(spec, attempt=1)
    nonce = prepare(one.directory, again)
    assert one.status.state is JobState.QUEUED
    assert one.directory.tmp.exists()
    await_supervisor(one.directory, spawn(one.directory, nonce, host.environ(one)), again)
    hold.release()
    ended = one.wait_ended()
    assert (ended.state, ended.attempt) == (JobState.FAILED, 1)


def test_an_environment_in_a_file_is_all_that_the_job_has_and_the_file_goes(
    host: Host, leases: LeaseDirectory, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    one, hold = ready(host, leases, ("sh", "-c", f"env -0 > {told}"))
    nonce = prepare(one.directory, one.directory.read_spec())
    mine = {**host.environ(one), "ODD": "a=b\nc\udcff", "EMPTY": ""}
    write_environ(one.directory, mine)
    assert one.directory.environ.stat().st_mode & 0o777 == 0o600
    command = [sys.executable, "-m", "gpusched.supervisor", "--environment", str(one.directory.path), nonce]
    subprocess.run(command, env={"ONLY_HERE": "1"}, check=True)
    hold.release()
    got = dict(os.fsdecode(entry).split("=", 1) for entry in told.read_bytes().split(b"\0") if entry)
    assert {name: got[name] for name in ("ODD", "EMPTY", "MARKER")} == {
        name: mine[name] for name in ("ODD", "EMPTY", "MARKER")
    }
    assert "ONLY_HERE" not in got
    assert not one.directory.environ.exists()


def test_what_is_called_off_leaves_no_environment_behind(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases)
    prepare(one.directory, one.directory.read_spec())
    write_environ(one.directory, {"SECRET": "1"})
    assert cancel_start(one.directory)
    assert not one.directory.environ.exists()
    hold.rollback()


def test_who_waits_for_the_end_of_a_pipe_does_not_wait_for_the_job(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    hold.release()
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b""
    assert one.wait_running("actor.0")


def test_a_wrong_command_line_starts_nothing(host: Host, leases: LeaseDirectory) -> None:
    one, hold = ready(host, leases)
    for words in ([], [str(one.directory.path)], ["--other", str(one.directory.path), "nonce"]):
        done = subprocess.run([sys.executable, "-m", "gpusched.supervisor", *words], capture_output=True, check=False)
        assert done.returncode == 2
    assert not has_begun(one.directory)
    hold.rollback()


def test_a_process_that_left_its_replica_uses_the_share_all_the_same(host: Host, leases: LeaseDirectory) -> None:
    one = leased(host, leases, python("daemonise.py"))
    one.wait_output("actor.0", "daemon\n")
    pid = one.wait_running("actor.0")
    (away,) = [each for each in one.pids() if each not in (pid, one.supervisor, one.guard())]
    found = current_leases(leases, inventory(DeviceProcess(pid=away, memory_mib=100)))
    assert {each: lease.replica for each, lease in holders(found).items()}[away] == "actor.0"
    assert shares_used(found)[away, "GPU-a"] == 1450


def inventory(*processes: DeviceProcess) -> Inventory:
    gpu = Device(index=0, uuid="GPU-a", name="V100", memory_total_mib=16160, processes=processes)
    return Inventory(host="here", source="nvml", devices=(gpu,), cpus=(0,))


def test_the_processes_of_a_replica_are_known_by_its_status_its_children_and_its_guard(
    host: Host, leases: LeaseDirectory
) -> None:
    one = leased(host, leases, python("grandchildren.py"))
    one.wait_output("actor.0", "deaf\n", times=2)
    pid = one.wait_running("actor.0")
    (child, *_) = [each for each in one.pids() if each not in (pid, one.supervisor, one.guard())]
    seen = inventory(*(DeviceProcess(pid=each, memory_mib=100) for each in (pid, child, os.getpid())))
    found = current_leases(leases, seen)
    assert {each: lease.replica for each, lease in holders(found).items()} == {pid: "actor.0", child: "actor.0"}
    assert shares_used(found) == {(pid, "GPU-a"): 1450, (child, "GPU-a"): 1450}
    assert sum(lease.share_mib for lease in found) == 1450
    one.directory.status.unlink()  # as for a job whose directory cannot be read from here
    assert {each: lease.replica for each, lease in holders(current_leases(leases, seen)).items()} == {
        pid: "actor.0",
        child: "actor.0",
    }
