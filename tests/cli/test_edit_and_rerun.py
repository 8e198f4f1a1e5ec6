"""Jobs that wait are changed, and any job is queued again."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.cli.command import Command
from tests.cli.foreground import running
from tests.cli.queue import ONE_GPU, queue, until_state
from tests.patience import PATIENCE_S, until


def submit(command: Command, *words: str, argv: tuple[str, ...] = ("sleep", "600")) -> str:
    told = command.run("run", "-d", "--num-gpus", "0", *words, "--", *argv)
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def job(command: Command, job_id: str) -> dict[str, Any]:
    (found,) = json.loads(command.run("ps", "--json", job_id).stdout)["jobs"]
    assert isinstance(found, dict)
    return found


def test_what_waits_is_changed_and_none_takes_a_thing_away(command: Command) -> None:
    first = submit(command, "--hold")
    second = submit(command, "--hold", "--name", "train", "--time-limit", "1h", "--at", "+2h", "--after", first)
    told = command.run("edit", second, "--priority", "5", "--time-limit", "2h", "--name", "better")
    assert (told.returncode, told.stdout) == (0, f"{second} is changed\n")
    found = job(command, "better")
    assert (found["id"], found["priority"], found["time_limit_s"], found["after"]) == (second, 5, 7200, [first])
    command.run("edit", "better", "--priority", "0", "--time-limit", "none", "--at", "none", "--after", "none")
    found = job(command, second)
    assert (found["priority"], found["time_limit_s"], found["at"], found["after"]) == (0, None, None, [])
    assert command.run("ps", "train").returncode == 4


def test_a_change_is_kept_over_the_death_of_the_daemon_and_decides_who_starts_first(command: Command) -> None:
    whole = ("--machine", "1x16GiB", "--num-gpus", "1")
    running = command.run("run", "-d", *whole, "--", "sleep", "600").stdout.strip()
    first, second = (command.run("run", "-d", *whole, "--", "sleep", "600").stdout.strip() for _ in range(2))
    assert command.run("edit", second, "--priority", "1").returncode == 0
    os.kill(command.daemon(), signal.SIGKILL)
    command.run("stop", running)
    while job(command, first)["state"] == job(command, second)["state"] == "queued":
        time.sleep(0.1)
    assert (job(command, first)["state"], job(command, second)["state"] != "queued") == ("queued", True)


SHOWS = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES|$GPUSCHED_MEMORY_LIMIT_MIB"; sleep 600')


def test_a_command_that_waits_gets_another_amount_and_starts_where_that_fits(command: Command) -> None:
    full = queue(command, *ONE_GPU, "--memory", "12GiB", "--", "sleep", "600")
    until_state(command, full, "running")
    name = queue(command, *ONE_GPU, "--memory", "12GiB", "--processes", "2", "--", *SHOWS)
    never = command.run("edit", name, "--memory", "1TiB")
    assert (never.returncode, "16057 of 16384 MiB on GPU 0" in never.stderr) == (3, True)
    few = command.run("edit", name, "--memory", "1MiB")
    assert (few.returncode, "less than 1 MiB for each of 2 processes" in few.stderr) == (2, True)
    assert job(command, name)["state"] == "queued"

    told = command.run("edit", name, "--memory", "2GiB")
    assert (told.returncode, told.stdout) == (0, f"{name} is changed\n"), told.stderr

    until_state(command, name, "running")
    until(lambda: command.run("logs", name).stdout.endswith("|1024\n"), "each of its two processes has half of it")


def test_a_command_that_waits_in_the_foreground_gets_another_amount_and_starts(command: Command) -> None:
    full = queue(command, *ONE_GPU, "--memory", "12GiB", "--", "sleep", "600")
    until_state(command, full, "running")
    shows = ("sh", "-c", "echo $GPUSCHED_MEMORY_LIMIT_MIB")
    with running(command, "run", *ONE_GPU, "--name", "mine", "--memory", "12GiB", "--", *shows) as process:
        until(lambda: "queued" in command.run("ps", "mine").stdout, "it waits")
        told = command.run("edit", "mine", "--memory", "2GiB")
        assert told.returncode == 0, told.stderr
        assert process.communicate(timeout=PATIENCE_S)[0] == "2048\n"
    assert process.returncode == 0


def test_an_array_is_changed_for_those_of_its_members_that_wait(command: Command) -> None:
    amount, some = ("--memory", "2GiB", "--at-most", "1"), ("--hold", "--param", "x=1,2")
    swept = command.run("sweep", "-d", *ONE_GPU, *amount, *some, "--", *SHOWS, "{x}")
    assert swept.returncode == 0, swept.stderr
    name = swept.stdout.split()[0]
    members = f"{name}[0]", f"{name}[1]"
    assert command.run("edit", name, "--memory", "3GiB", "--priority", "2").returncode == 0
    command.run("release", name)
    until(lambda: command.run("logs", members[0]).stdout.endswith("|3072\n"), "it has what was changed")
    assert job(command, members[0])["priority"] == 2

    assert command.run("edit", name, "--memory", "4GiB").returncode == 0
    command.run("stop", members[0])
    until(lambda: command.run("logs", members[1]).stdout.endswith("|4096\n"), "it has what was changed since")
    told = command.run("edit", name, "--memory", "2GiB")
    assert (told.returncode, f"all members of {name} have begun" in told.stderr) == (2, True), told.stderr
    assert command.run("edit", name, "--name", "mine").returncode == 0, "the array itself has not ended"


def test_the_same_is_queued_again_with_another_amount(command: Command) -> None:
    first = queue(command, *ONE_GPU, "--gpus", "0", "--fraction", "0.4", "--hold", "--", *SHOWS)

    again = command.run("rerun", first, "--memory", "3GiB").stdout.strip()
    bare = command.run("rerun", first, "--num-gpus", "0").stdout.strip()

    until(lambda: command.run("logs", again).stdout.endswith("|3072\n"), "it has what was asked for now")
    until(lambda: command.run("logs", bare).stdout.endswith("\n|\n"), "it has no device")


def test_of_several_none_is_changed_where_one_could_not_have_it_and_that_is_named(command: Command) -> None:
    first, second = (
        queue(command, "--machine", machine, "--memory", "2GiB", "--hold", "--", "true")
        for machine in ("1x16GiB", "1x8GiB")
    )
    told = command.run("edit", first, second, "--memory", "12GiB", "--priority", "3")
    assert (told.returncode, told.stderr.startswith(f"gpusched: {second}: needs 12738 MiB")) == (3, True), told.stderr
    assert [job(command, one)["priority"] for one in (first, second)] == [0, 0]


def test_which_devices_it_may_use_stays_and_without_a_device_none_comes_back(command: Command) -> None:
    name = queue(command, "--machine", "4x16GiB", "--gpus", "2,3", "--memory", "2GiB", "--hold", "--", *SHOWS)
    command.run("edit", name, "--num-gpus", "1")
    command.run("release", name)
    until_state(command, name, "running")
    assert job(command, name)["replicas"][0]["device_index"] in (2, 3)
    none = queue(command, *ONE_GPU, "--memory", "2GiB", "--hold", "--", "true")
    assert command.run("edit", none, "--num-gpus", "0").returncode == 0
    told = command.run("edit", none, "--num-gpus", "1")
    assert (told.returncode, "was queued without a device" in told.stderr) == (2, True), told.stderr


def test_what_a_workload_needs_is_no_amount(command: Command) -> None:
    told = command.run("launch", "-d", command.toy("for_ever.py"), *ONE_GPU, "--hold")
    assert told.returncode == 0, told.stderr
    for words in (("edit", "toy-1"), ("rerun", "toy-1")):
        told = command.run(*words, "--fraction", "0.2")
        assert (told.returncode, "what toy needs is that of its roles" in told.stderr) == (2, True)


def test_a_wrong_change_changes_nothing(command: Command) -> None:
    first = submit(command, "--hold", "--name", "first")
    second = submit(command, "--hold", "--name", "second", "--after", first)
    running = submit(command)
    until_state(command, running, "running")
    for words, message in (
        ((first, running, "--priority", "3"), f"{running} is running: only a queued job can be changed"),
        ((first, "--after", second), f"{first} would wait for {second}, which waits for it"),
        ((first, "--after", first), f"{first} would wait for itself"),
        ((first, "--after", "nothing"), "there is no job nothing to start after"),
        ((first, "--time-limit", "soon"), "--time-limit: 'soon'"),
        ((first,), "there is nothing to change"),
    ):
        told = command.run("edit", *words)
        assert told.returncode in (2, 4), words
        assert message in told.stderr
    found = job(command, first)
    assert (found["priority"], found["after"], found["name"]) == (0, [], "first")


def test_the_same_again_has_the_command_the_directory_and_the_environment_of_a_job_that_lives(
    command: Command, tmp_path: Path
) -> None:
    script = 'echo "$MINE in $PWD"'
    command.env["MINE"] = "mine"
    first = submit(command, "--hold", "--name", "say", "--time-limit", "1h", argv=("sh", "-c", script))
    command.env["MINE"] = "another"
    told = command.run("rerun", "say", "--priority", "2", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    again = told.stdout.strip()
    assert command.run("wait", again).returncode == 0
    found = job(command, again)
    assert (found["name"], found["priority"], found["time_limit_s"], found["held"]) == ("say.2", 2, 3600, False)
    here = job(command, first)["run_dir"]
    assert "mine in " in command.run("logs", again).stdout
    assert str(tmp_path) not in command.run("logs", again).stdout, here
    ended = command.run("rerun", again).stdout.strip()  # of a job that has ended nothing is kept of its environment
    command.run("wait", ended)
    assert "another in " in command.run("logs", ended).stdout


def test_a_job_that_follows_others_does_not_when_it_is_queued_again(command: Command) -> None:
    failing = submit(command, argv=("false",))
    follower = submit(command, "--after", failing, argv=("true",))
    assert command.run("wait", failing, follower).returncode == 1
    again = command.run("rerun", "--last").stdout.strip()
    assert command.run("wait", again).returncode == 0


def test_a_name_is_given_again_and_a_priority_of_zero_is_one(command: Command) -> None:
    first, second = (submit(command, "--hold", "--name", "train", "--priority", "5") for _ in range(2))
    assert command.run("edit", "train.2", "--name", "train").returncode == 0
    assert job(command, second)["name"] == "train.2"
    again = command.run("rerun", first, "--priority", "0", "--hold").stdout.strip()
    assert job(command, again)["priority"] == 0
