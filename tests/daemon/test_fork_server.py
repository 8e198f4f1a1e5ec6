"""Guards that are forked: the same processes as those that are executed, and never one more of them, whatever dies."""

import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusched.control.messages import Submit, Submitted
from gpusched.daemon.fork_client import ForkServerClient, common_server
from gpusched.linux.processes import parent, start_time
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import PATIENCE_S, until

SERVER = b"gpusched.supervisor.fork_server"
WHO = "read -r _ _ _ g _ < /proc/$PPID/stat; read -r _ _ _ f _ < /proc/$g/stat; "
LINE = 'grep -qs fork_server /proc/$f/cmdline && k=forked || k=executed; echo "$GPUSCHED_JOB $k" >> '


def content(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def servers(daemon: Daemon) -> list[int]:
    """The fork servers of the daemon that runs."""
    return [pid for pid in daemon.command.running() if SERVER in content(pid, "cmdline") and parent(pid) == daemon.pid]


def started(daemon: Daemon, **changes: Any) -> tuple[str, int, int]:
    """Start a job that goes on; return its id, and the pids of its supervisor and its guard."""
    job = daemon.submit("sleep", "600", **changes)
    daemon.wait(job, JobState.RUNNING)
    supervisor = daemon.job(job).supervisor_pid
    assert supervisor is not None
    guard = parent(supervisor)
    assert guard is not None
    return job, supervisor, guard


def forked(daemon: Daemon, **changes: Any) -> tuple[str, int, int]:
    """The same of a job whose guard is a child of the fork server; others are started until there is one."""
    found: list[tuple[str, int, int]] = []

    def is_forked() -> bool:
        found[:] = [started(daemon, **changes)]
        return SERVER in content(parent(found[0][2]) or 0, "cmdline")

    until(is_forked, "a guard is forked")
    return found[0]


def ended_once(daemon: Daemon, jobs: list[str], ledger: Path) -> None:
    """Each job has succeeded, at its first attempt, and has run once; and some of them were forked."""
    told = daemon.ended(*jobs)
    assert [(job.state, job.attempt) for job in told] == [(JobState.SUCCEEDED, 0)] * len(jobs)
    lines = [line.split() for line in ledger.read_text().splitlines()]
    assert sorted(job for job, _ in lines) == sorted(jobs)
    assert Counter(how for _, how in lines)["forked"]


def submit_many(daemon: Daemon, number: int, script: str) -> list[str]:
    client, jobs = daemon.client(), list[str]()
    for _ in range(number):
        answer = client.ask(Submit(job=daemon.submission("sh", "-c", script)), PATIENCE_S)
        assert isinstance(answer, Submitted)
        jobs.append(answer.id)
    return jobs


@pytest.mark.timeout(300)
def test_a_burst_runs_each_job_once_while_the_daemon_is_killed_again_and_again(daemon: Daemon) -> None:
    ledger = daemon.state / "ledger"
    daemon.start()
    jobs = submit_many(daemon, 60, f"{WHO}{LINE}{ledger}")
    for number in (4, 10, 20, 30, 40):
        until(lambda: ledger.exists() and ledger.read_text().count("\n") >= number, f"{number} have run")  # noqa: B023
        daemon.kill()
        daemon.start()
    ended_once(daemon, jobs, ledger)


@pytest.mark.timeout(300)
def test_a_burst_runs_each_job_once_while_the_fork_server_is_killed(daemon: Daemon) -> None:
    dice = random.Random(3)  # noqa: S311
    ledger = daemon.state / "ledger"
    daemon.start()
    forked(daemon)
    jobs = submit_many(daemon, 40, f"{WHO}{LINE}{ledger}")
    (server,) = servers(daemon)
    until(lambda: ledger.exists() and ledger.read_text().count("forked") >= dice.randrange(1, 9), "some were forked")
    os.kill(server, signal.SIGKILL)
    ended_once(daemon, jobs, ledger)
    assert "the fork server" in daemon.log


def test_a_fork_server_that_hangs_costs_no_job_its_start(daemon: Daemon) -> None:
    ledger = daemon.state / "ledger"
    daemon.start()
    forked(daemon)
    jobs = submit_many(daemon, 1, f"{WHO}{LINE}{ledger}")
    daemon.ended(*jobs)
    (server,) = servers(daemon)
    os.kill(server, signal.SIGSTOP)
    jobs += submit_many(daemon, 3, f"{WHO}{LINE}{ledger}")
    ended_once(daemon, jobs, ledger)
    assert start_time(server) is None


def test_a_forked_guard_that_starts_nothing_is_noticed_when_it_ends(daemon: Daemon) -> None:
    daemon.start()
    forked(daemon)
    (server,) = servers(daemon)
    os.kill(server, signal.SIGSTOP)
    job = daemon.submit("true")
    lock = daemon.state / "jobs" / job / "guard.lock"
    until(lambda: daemon.job(job).state is JobState.STARTING, "it is prepared")
    lock.write_text("the nonce of another attempt")
    os.kill(server, signal.SIGCONT)

    (told,) = daemon.ended(job)

    assert told.state is JobState.SUCCEEDED
    assert "this attempt was called off" in (lock.parent / "logs" / "supervisor.log").read_text()
    assert "the fork server" not in daemon.log


OF_GLIBC = 1 << 31 | 1 << 32
"""Signals 32 and 33, which are for glibc alone: its posix_spawn leaves them ignored, and nothing can send them."""


def about(daemon: Daemon, job: str, pid: int, array: str = "") -> dict[str, object]:
    """What a process has beside its memory, without what differs between any two jobs: the id, the nonce, a digest."""
    nonce = (daemon.state / "jobs" / job / "guard.lock").read_bytes().split()[-1].decode()

    def common(text: str) -> str:
        return re.sub(rf"{re.escape(job)}(-[0-9a-f]{{8}})?|{nonce}|:\[\d+\]", "", text).replace(array or job, "")

    def shown(name: str) -> str:
        return common(content(pid, name).decode())

    status = dict(line.split(":\t", 1) for line in content(pid, "status").decode().splitlines())
    same = ("Umask", "SigBlk", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Threads", "Uid", "Gid")
    return {
        **{name: shown(name) for name in ("cmdline", "comm", "limits", "cgroup", "oom_score_adj")},
        "environ": sorted(shown("environ").split("\0")),
        "links": [str(Path(f"/proc/{pid}/{name}").readlink()) for name in ("cwd", "exe", "ns/pid", "ns/mnt")],
        "status": {name: status[name] for name in same},
        "ignored": int(status["SigIgn"], 16) & ~OF_GLIBC,
        "leads": (os.getsid(pid) == pid, os.getpgid(pid) == pid),
        "descriptors": {one.name: common(str(one.readlink())) for one in Path(f"/proc/{pid}/fd").iterdir()},
    }


def test_a_forked_guard_and_its_supervisor_and_command_have_what_executed_ones_have(daemon: Daemon) -> None:
    daemon.start()
    job, supervisor, guard = started(daemon)
    executed = [about(daemon, job, pid) for pid in (guard, supervisor, command_of(daemon, job))]
    assert parent(guard) == daemon.pid

    job, supervisor, guard = forked(daemon)

    for found, expected in zip((guard, supervisor, command_of(daemon, job)), executed, strict=True):
        assert about(daemon, job, found) == expected


def command_of(daemon: Daemon, job: str) -> int:
    """The pid of the job's command, once it is that of `sleep`."""
    until(lambda: content(pid_of(daemon, job), "comm") == b"sleep\n", "the command runs")
    return pid_of(daemon, job)


def pid_of(daemon: Daemon, job: str) -> int:
    return next((one.pid for one in daemon.job(job).replicas if one.pid), 0)


def test_what_one_job_has_in_its_environment_is_in_no_process_of_another(daemon: Daemon) -> None:
    daemon.env["OF_THE_DAEMON"] = "daemon-secret"
    daemon.start()
    mine = {name: value for name, value in daemon.env.items() if name != "OF_THE_DAEMON"}
    forked(daemon, environ=mine | {"SECRET": "first-secret"})
    job, supervisor, guard = forked(daemon, environ=mine | {"OTHER": "second-secret"})

    for pid in (supervisor, guard, command_of(daemon, job)):
        assert b"second-secret" in content(pid, "environ")
        assert b"first-secret" not in content(pid, "environ")
        assert b"daemon-secret" not in content(pid, "environ")
    (server,) = servers(daemon)
    assert b"secret" not in content(server, "environ") + content(server, "cmdline")


def test_a_large_environment_reaches_a_forked_job_whole(daemon: Daemon) -> None:
    daemon.start()
    forked(daemon)
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(4)}
    ledger = daemon.state / "ledger"
    job = daemon.shell(f"{WHO}{LINE}{ledger}; test ${{#LARGE_3}} = 100000", environ=daemon.env | large)
    ended_once(daemon, [job], ledger)


def test_a_job_whose_locale_is_not_utf_8_is_executed_since_it_names_files_in_another_way(daemon: Daemon) -> None:
    daemon.start()
    forked(daemon)
    _, _, guard = started(daemon, environ=daemon.env | {"LC_ALL": "de_DE.ISO-8859-1"})
    assert parent(guard) == daemon.pid


def test_guards_outlive_the_daemon_and_its_fork_server(daemon: Daemon) -> None:
    daemon.start()
    job, supervisor, guard = forked(daemon)
    (server,) = servers(daemon)
    daemon.kill()
    until(lambda: start_time(server) is None, "the fork server ends with the daemon")
    daemon.start()
    assert daemon.job(job).supervisor_pid == supervisor
    assert start_time(guard) is not None


def test_the_guards_of_a_fork_server_that_is_gone_are_waited_for_by_the_daemon(daemon: Daemon) -> None:
    """No other process may be there to do so: in a container, the first process often is a `sleep`."""
    daemon.start()
    job, _, guard = forked(daemon)
    (server,) = servers(daemon)
    os.kill(server, signal.SIGKILL)
    until(lambda: parent(guard) == daemon.pid, "the daemon adopts the guard")
    daemon.command.run("stop", job)
    until(lambda: not Path(f"/proc/{guard}").exists(), "the guard is gone, and no zombie")


def once_ready(client: ForkServerClient, now: Callable[[], float]) -> None:
    def is_ready() -> bool:
        client.receive(now())
        return client.is_ready

    until(is_ready, "it has imported everything")


@pytest.fixture
def client() -> ForkServerClient:
    return ForkServerClient(common_server(os.environ), (1024, 4096))


def fork_nothing(client: ForkServerClient, tmp_path: Path, now: float) -> None:
    """Ask for the guard of a job that there is not."""
    from gpusched.execution.directory import JobDirectory

    assert not client.fork(JobDirectory(tmp_path / "none"), "0", {}, now)


def test_a_fork_server_is_there_where_starts_come_quickly_and_only_as_long(
    client: ForkServerClient, tmp_path: Path
) -> None:
    fork_nothing(client, tmp_path, 0.0)
    fork_nothing(client, tmp_path, 10.0)
    assert client.fileno() is None
    fork_nothing(client, tmp_path, 11.0)
    assert client.fileno() is not None
    once_ready(client, lambda: 11.0)
    client.check(40.0)
    assert client.is_ready
    pid = client._pid
    client.check(42.0)
    assert client.fileno() is None
    _, status = os.waitpid(pid, 0)
    client.reaped(pid)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_fork_server_that_was_given_up_is_killed_and_none_takes_its_place_at_once(
    client: ForkServerClient, tmp_path: Path
) -> None:
    fork_nothing(client, tmp_path, 0.0)
    fork_nothing(client, tmp_path, 1.0)
    once_ready(client, lambda: 1.0)
    client.give_up("is of no use", 2.0)
    assert os.waitstatus_to_exitcode(os.waitpid(client._pid, 0)[1]) == -signal.SIGKILL
    fork_nothing(client, tmp_path, 3.0)
    assert client.fileno() is None
    fork_nothing(client, tmp_path, 12.5)
    fork_nothing(client, tmp_path, 13.0)
    assert client.fileno() is not None
    client.give_up("is of no use", 14.0)
    os.waitpid(client._pid, 0)
