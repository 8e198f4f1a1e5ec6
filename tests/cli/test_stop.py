"""`gpusched stop`, `hold` and `release`."""

import json
import signal

from tests.cli.command import Command
from tests.cli.queue import SLEEP, jobs, queue, state, until_state
from tests.patience import PATIENCE_S, until

STUBBORN = ("--num-gpus", "0", "--grace", "1h", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")


def test_it_waits_until_each_has_ended_and_tells_it(command: Command) -> None:
    running, waiting = queue(command, *SLEEP), queue(command, "--hold", *SLEEP)
    until_state(command, running, "running")

    told = command.run("stop", running, waiting)

    assert told.returncode == 0
    first, second = sorted(told.stdout.splitlines())
    assert first.startswith(f"{running} cancelled after ")
    assert second == f"{waiting} cancelled: stopped by gpusched stop"
    assert {job["state"] for job in jobs(command).values()} == {"cancelled"}
    assert command.run("stop", running).stdout.startswith(f"{running} had ended before: cancelled")


def test_all_means_those_that_run_and_those_that_wait(command: Command) -> None:
    for words in (SLEEP, ("--hold", *SLEEP), SLEEP):
        queue(command, *words)

    told = command.run("stop", "--all", "--json")

    assert [job["state"] for job in json.loads(told.stdout)["jobs"]] == ["cancelled"] * 3
    assert command.run("stop", "--all").stdout == "no job runs or waits\n"


def test_a_launch_in_the_foreground_is_stopped_like_any_other(command: Command) -> None:
    launcher = command.start("launch", command.toy("for_ever.py"))
    until(lambda: command.job().get("state") == "running", "it runs")
    command.daemon()

    assert command.run("stop", "toy-1").stdout.startswith("toy-1 cancelled")
    launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 130


def test_kill_does_not_wait_for_the_grace(command: Command) -> None:
    name = queue(command, *STUBBORN)
    until(lambda: "up" in command.run("logs", name).stdout, "it is deaf")

    stopping = command.start("stop", name)
    until_state(command, name, "stopping")
    assert command.run("stop", name, "--kill").stdout.startswith(f"{name} cancelled")
    assert stopping.wait(PATIENCE_S) == 0
    stopping.communicate()


def test_ctrl_c_ends_the_waiting_not_the_stopping(command: Command) -> None:
    name = queue(command, *STUBBORN)
    until(lambda: "up" in command.run("logs", name).stdout, "it is deaf")
    stopping = command.start("stop", name)
    until_state(command, name, "stopping")
    stopping.send_signal(signal.SIGINT)

    said, _ = stopping.communicate(timeout=PATIENCE_S)
    assert stopping.returncode == 130
    assert f"still stopping: {name}" in said
    command.run("stop", name, "--kill")


def test_a_job_that_had_ended_was_not_stopped_now(command: Command) -> None:
    first = queue(command, "--hold", *SLEEP)
    command.run("stop", first)
    command.run("run", "--num-gpus", "0", "--", "true")

    assert command.run("stop", first).stdout.startswith(f"{first} had ended before: cancelled")
    assert command.run("stop", "run-2").stdout.startswith("run-2 had ended before: succeeded")


def test_no_wait_returns_at_once(command: Command) -> None:
    name = queue(command, *STUBBORN)
    until(lambda: "up" in command.run("logs", name).stdout, "it is deaf")

    assert command.run("stop", name, "--no-wait").stdout == f"{name} is stopping\n"
    assert state(command, name) in ("running", "stopping")
    command.run("stop", name, "--kill")


def test_unknown_jobs_and_none_at_all(command: Command) -> None:
    name = queue(command, *SLEEP)

    assert command.run("stop", name, "run-9").returncode == 4
    assert command.run("stop").returncode == 2
    assert command.run("stop", name, "--all").returncode == 2
    assert command.run("hold", "run-9").returncode == 4
    assert command.run("release", "run-9").returncode == 4
    assert state(command, name) != "cancelled"


def test_a_held_job_waits_until_it_is_released(command: Command) -> None:
    name = queue(command, "--at", "+2h", "--num-gpus", "0", "--", "true")

    assert command.run("hold", name).stdout == f"{name} is held\n"
    assert f"held: gpusched release {name}" in command.run("ps", "--why").stdout
    released = json.loads(command.run("release", name, "--json").stdout)["jobs"][0]
    assert (released["state"], released["held"]) == ("queued", False)


def test_only_what_is_queued_can_be_held(command: Command) -> None:
    name = queue(command, *SLEEP)
    until_state(command, name, "running")

    told = command.run("hold", name)

    assert told.returncode == 2
    assert f"{name} is running" in told.stderr


def test_a_wrong_configuration_keeps_nobody_from_seeing_and_ending_jobs(command: Command) -> None:
    running = queue(command, *SLEEP)
    until_state(command, running, "running")
    path = command.home / "config.toml"
    path.write_text('kep_jobs = "90d"\n')
    command.env["GPUSCHED_CONFIG"] = str(path)
    warning = f"gpusched: warning: {path}: kep_jobs: there is no such key; it is left out (did you mean keep_jobs?)\n"

    refused = command.run("run", "-d", "--num-gpus", "0", "--", "true")
    seen = [command.run(*words) for words in (("ps",), ("status",), ("logs", running), ("stop", running))]

    assert (refused.returncode, "did you mean keep_jobs?" in refused.stderr) == (2, True)
    assert [(one.returncode, one.stderr) for one in seen] == [(0, warning)] * 4
