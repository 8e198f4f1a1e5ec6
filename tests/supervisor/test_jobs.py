"""Real jobs with replicas that misbehave: how each ends, and what its files say."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import HostFault, NotFound
from gpusched.execution.start import stop
from gpusched.leases.directory import LeaseDirectory
from gpusched.model.lease import Lease
from gpusched.model.plan import DeviceShare, ReplicaSpec
from gpusched.model.status import ExitReason, JobState, ReplicaState
from gpusched.model.workload import Restart
from tests.held import held_still
from tests.patience import until
from tests.supervisor.host import Host, start
from tests.supervisor.specs import job, python, replica

STAY = ("sleep", "1000")
UNTIL_GO = ("sh", "-c", "until [ -e $TMPDIR/go ]; do sleep 0.02; done")


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


def test_a_job_whose_replicas_complete_has_succeeded(host: Host) -> None:
    one = host.start(replica("part.0"), replica("part.1"))
    status = one.wait_ended()
    assert (status.state, status.message) == (JobState.SUCCEEDED, None)
    assert status.ended is not None
    assert status.created <= status.ended
    assert {part.exit for part in status.replicas} == {ExitReason(kind="completed")}
    one.wait_gone()


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("3", ExitReason(kind="crashed", code=3)),
        ("-11", ExitReason(kind="signalled", signal=signal.SIGSEGV)),
        ("-9", ExitReason(kind="signalled", signal=signal.SIGKILL)),
    ],
)
def test_a_crash_is_restarted_and_then_given_up_with_its_reason(host: Host, argument: str, reason: ExitReason) -> None:
    one = host.start(replica("part.0", python("crash.py", argument)))
    assert one.wait_ended().state is JobState.FAILED
    part = one.replica("part.0")
    assert (part.state, part.exit, part.restarts) == (ReplicaState.FAILED, reason, 2)
    assert one.events("part.0") == ["starting", "running", "backoff"] * 2 + ["starting", "running", "failed"]
    assert one.events("job") == ["starting", "running", "stopping", "failed"]
    attempts = [line for line in one.output("part.0").splitlines() if line.startswith("--- part.0, attempt ")]
    assert [line.split()[3] for line in attempts] == ["0,", "1,", "2,"]


def test_programs_that_cannot_start_say_why(host: Host, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "plain").chmod(0o600)
    nowhere = msgspec.structs.replace(replica("cwd.0", STAY), cwd=str(tmp_path / "gone"))
    one = host.start(replica("missing.0", ("no-such-program",)), replica("mode.0", (str(tmp_path / "plain"),)), nowhere)
    assert one.wait_ended().state is JobState.FAILED
    told = {part.role: str(part.exit and part.exit.message) for part in one.status.replicas}
    assert told["missing"] == "no-such-program: No such file or directory"
    assert told["mode"] == f"{tmp_path}/plain: Permission denied"
    assert told["cwd"] == f"{tmp_path}/gone: No such file or directory"
    assert {part.restarts for part in one.status.replicas} == {0}, "another try would end alike"


def test_a_killed_actor_is_back_and_the_others_never_stopped(host: Host) -> None:
    one = host.start(replica("learner.0", STAY), replica("actor.0", STAY), replica("actor.1", STAY), leader="learner")
    before = {name: one.wait_running(name) for name in ("learner.0", "actor.0", "actor.1")}
    os.kill(before["actor.0"], signal.SIGKILL)
    assert one.wait_running("actor.0", restarts=1) != before["actor.0"]
    assert one.replica("learner.0").pid == before["learner.0"]
    assert one.replica("actor.1").pid == before["actor.1"]
    assert one.status.state is JobState.RUNNING


def test_a_second_attempt_can_do_better(host: Host) -> None:
    one = host.start(replica("part.0", python("crash.py", "5", "once")))
    one.wait_running("part.0", restarts=1)
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED


def test_the_leaders_end_ends_everything_deaf_actors_and_their_children_too(host: Host) -> None:
    one = host.start(
        replica("learner.0", UNTIL_GO),
        replica("actor.0", python("ignore_term.py")),
        replica("actor.1", python("grandchildren.py")),
        replica("actor.2", python("daemonise.py")),
        leader="learner",
    )
    one.wait_output("actor.0", "deaf\n")
    one.wait_output("actor.1", "deaf\n", times=2)
    one.wait_output("actor.2", "daemon\n")
    assert len(one.pids()) >= 9
    (one.directory.tmp / "go").touch()
    assert one.wait_ended().state is JobState.SUCCEEDED
    assert {one.replica(f"actor.{rank}").exit for rank in range(3)} == {ExitReason(kind="stopped")}
    one.wait_gone()
    assert not one.directory.tmp.exists()


def test_what_a_replica_leaves_in_its_group_dies_with_it(host: Host) -> None:
    one = host.start(replica("part.0", python("grandchildren.py", "leave")), replica("other.0", STAY))
    until(lambda: one.replica("part.0").state is ReplicaState.EXITED, "the first process has left")
    other = one.replica("other.0").pid
    until(lambda: one.pids() == sorted([other or 0, one.supervisor, one.guard()]), "its children are dead")


def test_a_daemon_that_fled_from_its_session_dies_with_the_job(host: Host) -> None:
    one = host.start(replica("part.0", python("daemonise.py", "leave")), replica("last.0", UNTIL_GO))
    one.wait_output("part.0", "daemon\n")
    until(lambda: one.replica("part.0").state is ReplicaState.EXITED, "only the daemon is left of it")
    guard = one.guard()
    assert len(one.pids()) >= 4
    with held_still(guard):  # it would sweep too: here the supervisor has to
        (one.directory.tmp / "go").touch()
        assert one.wait_ended().state is JobState.SUCCEEDED
        until(lambda: one.pids() == [guard], "only the guard is left")
    one.wait_gone()


def test_a_stop_asks_and_then_kills(host: Host) -> None:
    one = host.start(replica("stubborn.0", python("ignore_term.py")), replica("polite.0", STAY))
    one.wait_output("stubborn.0", "deaf\n")
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED
    assert one.events("polite.0")[-2:] == ["stopping", "exited"]
    assert {part.exit for part in one.status.replicas} == {ExitReason(kind="stopped")}
    one.wait_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_kills_at_once(host: Host, number: signal.Signals) -> None:
    one = host.start(replica("stubborn.0", python("ignore_term.py")), stop_grace_s=3600.0)
    one.wait_output("stubborn.0", "deaf\n")
    os.kill(one.supervisor, number)
    until(lambda: one.status.state is JobState.STOPPING, "the first signal was taken")
    os.kill(one.supervisor, number)
    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_a_signal_to_guard_and_supervisor_is_one_stop(host: Host, tmp_path: Path) -> None:
    """As systemd sends it to a control group, and scancel to a process tree: what saves its work is not killed."""
    one = host.start(replica("part.0", python("saver.py", str(tmp_path), "1")), stop_grace_s=3600.0)
    until((tmp_path / "ready-1").exists, "it runs")
    os.kill(one.guard(), signal.SIGTERM)
    until(lambda: one.status.state is JobState.STOPPING, "the guard has passed it on")
    os.kill(one.supervisor, signal.SIGTERM)
    one.directory.status.unlink()
    until(one.directory.status.exists, "the supervisor has taken a turn since, in which it wrote it again")

    (tmp_path / "release").touch()
    assert one.wait_ended().state is JobState.CANCELLED
    assert (tmp_path / "saved-1").exists()


def test_a_hangup_is_ignored_and_a_stop_sent_to_the_guard_is_passed_on(host: Host) -> None:
    one = host.start(replica("part.0", STAY))
    one.wait_running("part.0")
    guard = one.guard()
    for pid in (one.supervisor, guard):
        os.kill(pid, signal.SIGHUP)
    os.kill(guard, signal.SIGTERM)
    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_output_is_kept_whole(host: Host) -> None:
    one = host.start(replica("part.0", python("chatter.py")))
    one.wait_ended()
    assert len(one.output("part.0")) > 4_000_000
    assert one.output("part.0").count("e" * 999 + "\n") == 2000


def test_a_replica_finds_itself_as_it_was_planned(host: Host, tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    plain = replica("part.0", python("tell.py", str(tmp_path / "told.json")), env={"FROM_SPEC": "yes"})
    planned = msgspec.structs.replace(plain.replica, cpus=(cpu, 4000))
    one = host.start(ReplicaSpec(replica=planned, argv=plain.argv, env=plain.env, cwd=str(tmp_path)))
    until((tmp_path / "told.json").exists, "the replica has told")
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["env"]["FROM_SPEC"] == "yes"
    assert told["env"]["GPUSCHED_ATTEMPT"] == "0"
    assert told["env"]["TMPDIR"] == str(one.directory.tmp)
    assert told["env"]["MARKER"] is not None
    assert told["env"]["NOTIFY_SOCKET"] is None
    assert told["cpus"] == [cpu]
    assert told["descriptors"] == [0, 1, 2]
    assert told["stdin"] == "/dev/null"
    assert told["leads"]
    assert told["blocked"] == []
    assert not told["sighup_ignored"]
    assert told["cwd"] == str(tmp_path)


def test_cpus_that_are_not_there_are_no_obstacle(host: Host, tmp_path: Path) -> None:
    plain = replica("part.0", python("tell.py", str(tmp_path / "told.json")))
    planned = msgspec.structs.replace(plain.replica, cpus=(4000,))
    host.start(msgspec.structs.replace(plain, replica=planned))
    until((tmp_path / "told.json").exists, "the replica has told")
    assert json.loads((tmp_path / "told.json").read_text())["cpus"] == sorted(os.sched_getaffinity(0))


def wakeups_in_a_second(pid: int) -> int:
    def wakeups() -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    subprocess.run(["sleep", "0.3"], check=True)  # the last save is at most a tenth of a second late
    before = wakeups()
    subprocess.run(["sleep", "1"], check=True)
    return wakeups() - before


def test_an_idle_job_sleeps_and_so_does_its_guard(host: Host) -> None:
    one = host.start(replica("part.0", STAY))
    until(lambda: one.status.state is JobState.RUNNING, "the job runs")
    assert wakeups_in_a_second(one.supervisor) < 10
    assert wakeups_in_a_second(one.guard()) == 0


def test_a_job_that_waits_for_the_end_of_a_grace_sleeps_too(host: Host) -> None:
    one = host.prepare(replica("stubborn.0", python("ignore_term.py")), stop_grace_s=3600.0)
    launcher = host.launch(one)
    one.wait_output("stubborn.0", "deaf\n")
    launcher.kill()
    launcher.wait()
    until(lambda: one.status.state is JobState.STOPPING, "the launcher was missed")
    assert wakeups_in_a_second(one.supervisor) < 10


def test_a_disk_that_fails_costs_no_replica(host: Host) -> None:
    one = host.start(replica("part.0", STAY), replica("part.1", STAY))
    before = one.wait_running("part.0")
    until(lambda: one.status.state is JobState.RUNNING, "the job runs")
    one.directory.events.unlink()
    one.directory.events.mkdir()
    one.directory.logs.rename(one.directory.path / "logs-moved")
    os.kill(one.wait_running("part.1"), signal.SIGKILL)
    log = one.directory.path / "logs-moved" / "supervisor.log"
    until(lambda: "could not save the job's events" in log.read_text(), "the problem is told")
    until(lambda: "the output of part.1 is lost" in log.read_text(), "the lost output is told")
    one.directory.events.rmdir()
    assert one.wait_running("part.1", restarts=1)
    assert one.replica("part.0").pid == before
    assert "the output of part.1 is lost" in str(one.status.message), "the latest trouble stands in the status"
    until(one.directory.events.is_file, "the events are saved after all")  # a status may be first
    assert one.events("part.1") == ["backoff", "starting", "running"]
    (one.directory.path / "logs-moved").rename(one.directory.logs)


@pytest.fixture
def small_disk(host: Host, tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB under the jobs of the host, which end with the test."""
    disk = tmp_path / "jobs"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield disk
    host.end()
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_costs_no_replica(host: Host, small_disk: Path) -> None:
    one = host.start(replica("part.0", STAY), replica("part.1", STAY))
    before = one.wait_running("part.0")
    victim = one.wait_running("part.1")
    fill(small_disk / "ballast")
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(one.pids()) == 4 and victim not in one.pids(), "the actor is back on a full disk")
    (small_disk / "ballast").unlink()
    assert one.wait_running("part.1", restarts=1)
    assert one.replica("part.0").pid == before
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_how_a_job_ended_is_saved_on_a_full_disk_too(host: Host, small_disk: Path) -> None:
    one = host.start(replica("part.0", STAY))
    one.wait_running("part.0")
    fill(small_disk / "ballast")
    stop(one.status)
    one.wait_gone()  # it tries for a while to save it as it should be
    assert one.status.state is JobState.CANCELLED
    told = one.replica("part.0").exit
    assert told is not None
    assert told.kind == "stopped"


def test_a_supervisor_that_cannot_start_is_the_hosts_fault_and_the_job_has_failed(host: Host) -> None:
    one = host.prepare(replica("part.0", STAY))
    broken = msgspec.structs.replace(one.directory.read_spec(), attached=True, launcher=None)
    with pytest.raises(HostFault, match="did not start: snake-1 is attached to no process") as told:
        start(one.directory, broken, host.environ(one))
    assert "supervisor.log" in told.value.hint
    assert one.status.state is JobState.FAILED
    one.wait_gone()


def test_a_job_that_is_over_cannot_be_stopped(host: Host) -> None:
    one = host.start(replica("part.0"))
    status = one.wait_ended()
    with pytest.raises(NotFound, match="is not running: it is succeeded"):
        stop(status)
    with pytest.raises(NotFound):
        stop(msgspec.structs.replace(status, state=JobState.RUNNING, supervisor_start=1))


def test_a_job_of_which_every_rule_says_never_ends_at_its_first_crash(host: Host) -> None:
    spec = job(replica("part.0", ("false",)))
    one = host.start(*spec.replicas, restart={"part": Restart(policy="never")})
    assert one.wait_ended().state is JobState.FAILED
    assert one.replica("part.0").restarts == 0


def test_a_job_is_stopped_and_fails_when_its_time_limit_is_over(host: Host) -> None:
    one = host.start(replica("deaf.0", python("ignore_term.py")), replica("polite.0", STAY), time_limit_s=5.0)
    status = one.wait_ended()
    assert status.state is JobState.FAILED
    assert str(status.message).startswith("its time limit of 5 s is over; deaf.0 was killed after its grace of 0.3 s: ")
    assert status.time_limit_s == 5.0
    assert {part.exit for part in status.replicas} == {ExitReason(kind="stopped")}
    one.wait_gone()


def test_a_replica_of_a_job_that_is_started_again_does_not_take_itself_for_new(host: Host) -> None:
    one = host.start(replica("part.0", ("sh", "-c", "echo I am $GPUSCHED_ATTEMPT; exit 1")), attempt=2)
    one.wait_ended()
    assert [line for line in one.output("part.0").splitlines() if "I am" in line] == ["I am 2", "I am 3", "I am 4"]


def test_the_status_tells_which_attempt_of_the_job_it_is_and_when_it_began(host: Host) -> None:
    shares = (DeviceShare(device_index=1, device_uuid="GPU-b", share_mib=100),)
    plain = replica("part.0", STAY, device="GPU-a")
    several = msgspec.structs.replace(plain, replica=msgspec.structs.replace(plain.replica, further=shares))
    one = host.start(several, attempt=2, created=1.0)
    status = one.status
    assert (status.attempt, status.replicas[0].further) == (2, shares)
    assert status.started is not None
    assert status.started > 1_600_000_000


def test_a_replica_that_has_ended_for_good_gives_its_share_back_while_the_others_keep_theirs(host: Host) -> None:
    one = host.prepare(replica("part.0", device="GPU-a"), replica("part.1", STAY, device="GPU-a"))
    directory = LeaseDirectory(host.state / "leases")
    shares = [Lease(device_uuid="GPU-a", share_mib=1450, job=one.status.id, replica=f"part.{n}") for n in (0, 1)]
    with directory.locked():
        hold = directory.commit(one.status.id, shares, one.directory.path)
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    hold.release()
    until(lambda: [each.replica for each in directory.read()] == ["part.1"], "only part.1 holds its share")
    one.stop()
    one.wait_ended()
    until(lambda: directory.read() == (), "nothing is held any more")
