"""Whoever dies, however: nothing that the job started is left."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.linux.oom import find_counter
from gpusched.linux.processes import command_line
from gpusched.model.status import ExitReason, JobState, ReplicaState
from tests.patience import until
from tests.supervisor.host import Host, Job, start
from tests.supervisor.specs import python, replica

STAY = ("sleep", "1000")


@pytest.fixture
def family(host: Host) -> Job:
    """A job with every kind of process that is hard to end."""
    one = host.start(
        replica("stubborn.0", python("ignore_term.py")),
        replica("parent.0", python("grandchildren.py")),
        replica("orphans.0", python("daemonise.py", "leave")),
        replica("daemon.0", python("daemonise.py")),
        leader="parent",
    )
    one.wait_output("stubborn.0", "deaf\n")
    one.wait_output("parent.0", "deaf\n", times=2)
    one.wait_output("orphans.0", "daemon\n")
    one.wait_output("daemon.0", "daemon\n")
    until(lambda: one.replica("orphans.0").state is ReplicaState.EXITED, "the orphans are orphans")
    return one


def test_kill_of_the_supervisor(family: Job) -> None:
    os.kill(family.supervisor, signal.SIGKILL)
    family.wait_gone()
    status = family.status
    assert status.state is JobState.LOST
    assert status.message == f"the supervisor, process {family.supervisor}, ended unexpectedly by signal 9"
    assert status.ended is not None
    assert family.replica("stubborn.0").exit == ExitReason(kind="lost")
    assert family.replica("orphans.0").exit == ExitReason(kind="completed")
    assert family.events("job")[-1] == "lost"
    assert not family.directory.tmp.exists()


def test_a_crash_of_the_supervisor(family: Job) -> None:
    os.kill(family.supervisor, signal.SIGSEGV)
    family.wait_gone()
    assert family.status.state is JobState.LOST


def test_kill_of_a_supervisor_that_had_been_halted(family: Job) -> None:
    os.kill(family.supervisor, signal.SIGSTOP)
    os.kill(family.supervisor, signal.SIGKILL)
    family.wait_gone()
    assert family.status.state is JobState.LOST


def test_kill_of_the_guard(family: Job) -> None:
    os.kill(family.guard(), signal.SIGKILL)
    family.wait_gone()
    status = family.status
    assert (status.state, status.message) == (JobState.LOST, "the guard of this job was killed")
    assert family.replica("stubborn.0").exit == ExitReason(kind="stopped")
    assert family.events("job")[-2:] == ["stopping", "lost"]


def test_kill_of_guard_and_supervisor_together_ends_the_replicas(host: Host) -> None:
    one = host.start(replica("part.0", STAY), replica("stubborn.0", python("ignore_term.py")))
    one.wait_output("stubborn.0", "deaf\n")
    guard = one.guard()
    os.kill(guard, signal.SIGSTOP)  # so that it can do nothing for its supervisor
    os.kill(one.supervisor, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    one.wait_gone()
    assert one.status.state is JobState.LOST
    assert "is gone" in str(one.status.message)


def test_kill_of_the_launcher_stops_the_job_that_it_shows(host: Host) -> None:
    one = host.prepare(replica("part.0", STAY), replica("stubborn.0", python("ignore_term.py")))
    launcher = host.launch(one)
    one.wait_output("stubborn.0", "deaf\n")
    launcher.kill()
    launcher.wait()
    one.wait_gone()
    status = one.status
    assert status.state is JobState.CANCELLED
    assert str(status.message).startswith("stopped because the launch that shows it is gone; stubborn.0 was killed")


def test_a_detached_job_outlives_its_launcher(host: Host) -> None:
    one = host.start(replica("part.0", STAY))
    one.wait_running("part.0")
    assert os.getsid(one.supervisor) == one.guard() != os.getsid(0)
    assert os.getpgid(one.supervisor) != os.getpgid(one.guard())


def test_a_launcher_that_ignores_and_blocks_signals_passes_nothing_of_it_on(host: Host, tmp_path: Path) -> None:
    one = host.prepare(replica("part.0", python("tell.py", str(tmp_path / "told.json"))))
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGCHLD, signal.SIGHUP)}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGALRM])
    try:
        one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGALRM])
        for number, handler in before.items():
            signal.signal(number, handler)
    until((tmp_path / "told.json").exists, "the replica has told")
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["blocked"] == []
    assert not told["sighup_ignored"]
    os.kill(one.guard(), signal.SIGTERM)
    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_a_stop_in_the_middle_of_many_starts_leaves_nothing(host: Host) -> None:
    one = host.start(*(replica(f"part.{rank}", STAY) for rank in range(60)))
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()
    assert {part.exit for part in one.status.replicas} == {ExitReason(kind="stopped")}


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 96 MiB below our own."""
    counter = find_counter()
    limit = {"memory.oom_control": "memory.limit_in_bytes", "memory.events": "memory.max"}.get(counter.name)
    if limit is None:
        pytest.skip("this process is in no memory cgroup")
    group = counter.parent / f"gpusched-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(96 << 20))
    except OSError as error:
        pytest.skip(f"making a memory cgroup is not allowed here: {error}")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), "the cgroup is empty")
    group.rmdir()


def test_a_replica_that_the_kernel_killed_for_memory_is_told_from_one_that_a_person_killed(
    small_cgroup: Path, host: Host
) -> None:
    one = host.prepare(replica("hog.0", python("hog.py")), replica("part.0", STAY))
    host.launch(one, str(small_cgroup))
    os.kill(one.wait_running("part.0"), signal.SIGKILL)
    until(lambda: one.replica("hog.0").state is ReplicaState.FAILED, "the hog was killed three times")
    assert one.replica("hog.0").exit == ExitReason(kind="oom", signal=signal.SIGKILL)
    told = one.directory.events.read_text()
    assert '"oom"' in told
    assert '"kind":"signalled"' in told
    one.stop()
    one.wait_ended()
    one.kill_all()


def test_processes_that_change_their_pids_all_the_while_are_gone_after_a_stop(host: Host) -> None:
    """100 at a time, each in a session of its own: before it ends it starts the next one.

    Not more often than every half second: faster ones leave nothing of two CPUs to the tests beside this one.
    """
    chain = 'f() { setsid sh -c "sleep 0.5; $chain" & }; f'
    script = f"chain='{chain}'; export chain; for i in $(seq 100); do eval \"$chain\"; done; echo all; sleep 1000"
    one = host.start(replica("crowd.0", ("bash", "-c", script)))
    one.wait_output("crowd.0", "all\n")
    before = set(one.pids())
    until(lambda: len(set(one.pids()) - before) > 60, "they have other pids")
    one.stop()
    one.wait_ended()
    one.wait_gone()


AS_A_GUARD = """
words=$(tr "\\0" " " </proc/$PPID/cmdline)
words=${words% }
directory=${words% *}
setsid sh -c 'echo begun; sleep 1000; :' gpusched.supervisor "${directory##* }" "${words##* }" &
wait
"""
"""It starts a process with the arguments that its own job's guard has."""


def arguments(one: Job) -> list[str]:
    """The directory and the nonce that the guard was started with."""
    return command_line(one.supervisor).split()[-2:]


def test_what_has_the_arguments_of_its_own_jobs_guard_is_gone_after_a_stop(host: Host) -> None:
    one = host.start(replica("odd.0", ("sh", "-c", AS_A_GUARD)))
    one.wait_output("odd.0", "begun\n")

    def alike() -> list[str]:
        there = (command_line(pid).split() for pid in one.pids())
        return [words[0] for words in there if words[-2:] == arguments(one)]

    until(lambda: alike().count("sh") == 1, "its sleep is begun: until then that has its arguments, too")
    one.stop()
    one.wait_ended()
    one.wait_gone()
