"""A job that halts what supervises it can be stopped all the same."""

import os
import signal
from pathlib import Path

from gpusched.linux.processes import parent
from tests.cli.command import Command
from tests.cli.queue import jobs, queue, until_state
from tests.patience import until

NOTHING = ("--num-gpus", "0", "--", "sh", "-c")


def supervisor(command: Command) -> int:
    until(lambda: command.job("run-1").get("supervisor_pid"), "the job runs")
    return int(command.job("run-1")["supervisor_pid"])


def is_halted(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_supervisor_that_its_job_has_halted_goes_on_and_can_be_stopped(command: Command) -> None:
    queue(command, *NOTHING, "kill -STOP $PPID; echo done; sleep 1000")
    until(lambda: "done" in command.run("logs", "run-1").stdout, "it has halted its supervisor")

    told = command.run("stop", "run-1")

    assert told.stdout.startswith("run-1 cancelled after ")
    log = (command.state / "jobs" / "run-1" / "logs" / "supervisor.log").read_text()
    assert log.count("was halted by signal 19: it goes on\n") == 1


def test_a_stop_has_a_guard_go_on_that_is_halted_with_its_supervisor(command: Command) -> None:
    queue(command, *NOTHING, "sleep 1000")
    one = supervisor(command)
    guard = parent(one)
    assert guard is not None
    for pid in (guard, one):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: is_halted(one) and is_halted(guard), "both are halted")

    assert command.run("stop", "run-1").stdout.startswith("run-1 cancelled after ")


def test_a_job_that_halts_its_guard_and_ends_has_ended(command: Command) -> None:
    queue(command, *NOTHING, "kill -STOP $(awk '/^PPid/ {print $2}' /proc/$PPID/status)")

    assert command.run("wait", "run-1").returncode == 0


def test_a_job_whose_guard_is_halted_and_whose_supervisor_is_killed_is_lost(command: Command) -> None:
    queue(command, *NOTHING, "sleep 1000")
    one = supervisor(command)
    until_state(command, "run-1", "running")
    guard = parent(one)
    assert guard is not None
    os.kill(guard, signal.SIGSTOP)
    until(lambda: is_halted(guard), "it is halted")
    os.kill(one, signal.SIGKILL)

    until_state(command, "run-1", "lost")


def test_stop_kill_goes_around_a_supervisor_that_is_halted_again_and_again(command: Command) -> None:
    go = command.home / "go"
    halt = f"until read guard < {go}; do sleep 0.1; done 2>/dev/null; while :; do kill -STOP $guard $PPID; done"
    queue(command, *NOTHING, f"trap '' TERM; {halt}")
    one = supervisor(command)
    go.write_text(f"{parent(one)}\n")
    until(lambda: is_halted(one), "it is halted, and its guard, too, which would have it go on")

    command.run("stop", "--kill", "run-1")

    until_state(command, "run-1", "cancelled")
    assert jobs(command)["run-1"]["message"] in (
        "stopped by gpusched stop",
        "stopped by gpusched stop --kill; its supervisor did not obey and was killed",
    )
