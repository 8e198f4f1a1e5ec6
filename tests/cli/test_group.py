"""Groups on the command line: a limit, a pause, and every command that takes jobs takes those of a group."""

import json
from typing import Any

from tests.cli.command import Command
from tests.cli.queue import SLEEP, jobs, queue, state, until_state
from tests.patience import until


def group(command: Command, *words: str) -> dict[str, Any]:
    told = command.run("group", *words, "--json")
    assert told.returncode == 0, told.stdout
    return {one["name"]: one for one in json.loads(told.stdout)["groups"]}


def sweep(command: Command, *words: str) -> str:
    return queue(command, "--group", "sweep", *words, *SLEEP)


def test_a_group_is_limited_before_it_has_a_job_and_shown_with_those_that_run_and_wait(command: Command) -> None:
    told = command.run("group")
    assert (told.returncode, told.stdout) == (0, "there is no group: gpusched run -d --group NAME -- COMMAND\n")
    told = command.run("group", "sweep", "--at-most", "1")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [
        "GROUP  RUNNING  WAITING  AT MOST  STATE",
        "sweep        0        0        1  open",
    ]
    first, second = sweep(command), sweep(command)
    until_state(command, first, "running")
    until(lambda: "at most 1 may" in jobs(command)[second]["why"], "the second waits for its group")
    assert jobs(command)[second]["group"] == "sweep"
    assert "GROUP" in command.run("ps").stdout.splitlines()[0].split()
    assert group(command) == {"sweep": {"name": "sweep", "at_most": 1, "paused": False, "running": 1, "waiting": 1}}
    assert group(command, "none") == {"none": {"name": "none", "at_most": None, "paused": False} | NONE}
    assert command.run("group", "sweep", "--at-most", "none").stderr == ""
    until_state(command, second, "running")


NONE = {"running": 0, "waiting": 0}


def test_a_pause_lets_go_on_what_runs_and_names_the_command_that_ends_it(command: Command) -> None:
    first = sweep(command)
    until_state(command, first, "running")
    told = command.run("group", "sweep", "--pause")
    assert told.stderr == "  1 job of it goes on; to end: gpusched stop --group sweep\n"
    second = sweep(command)
    until(lambda: "is paused" in str(jobs(command)[second]["why"]), "the second waits for the pause")
    assert (
        "group sweep is paused; let it go on with: gpusched group sweep --resume" in command.run("ps", "--why").stdout
    )
    assert state(command, first) == "running"
    assert group(command, "sweep", "--resume")["sweep"]["paused"] is False
    until_state(command, second, "running")
    assert command.run("group", "sweep", "--at-most", "1").stderr.startswith("  2 jobs of it go on;")


def test_commands_that_take_jobs_take_those_of_a_group(command: Command) -> None:
    ids = [sweep(command), sweep(command, "--hold")]
    until_state(command, ids[0], "running")
    other = queue(command, "--hold", *SLEEP)
    assert [one["id"] for one in json.loads(command.run("ps", "--group", "sweep", "--json").stdout)["jobs"]] == ids
    assert command.run("hold", "--group", "sweep").stdout == f"{ids[1]} is held\n", "of those that wait"
    assert command.run("release", "--group", "sweep").stdout == f"{ids[1]} is queued\n"
    until_state(command, ids[1], "running")
    told = command.run("stop", "--group", "sweep", "--kill")
    assert sorted(line.split()[0] for line in told.stdout.splitlines()) == ids
    assert (command.run("wait", "--group", "sweep").returncode, state(command, other)) == (0, "queued")
    for words in (("stop",), ("wait",)):
        told = command.run(*words, "--group", "sweep")
        assert (told.returncode, told.stdout) == (0, "no job of group sweep runs or waits\n")
    assert command.run("hold", "--group", "sweep").stdout == "no job of group sweep is queued\n"
    assert (
        command.run("prune", "--older", "0.01s", "--group", "sweep", "--dry-run").stdout.count("would be removed") == 2
    )
    assert sorted(command.run("rm", "--group", "sweep").stdout.splitlines()) == [f"{one} is removed" for one in ids]
    assert list(jobs(command)) == [other]


def test_a_group_that_there_never_was_is_an_error_and_not_done(command: Command) -> None:
    commands: list[tuple[str, ...]] = [("wait",), ("stop",), ("hold",), ("release",), ("rm",), ("ps",)]
    before = [command.run(*words, "--group", "sweeep") for words in commands]
    sweep(command, "--hold")
    commands += [("prune", "--older", "1h")]
    for told in (*before, *(command.run(*words, "--group", "sweeep") for words in commands)):
        assert (told.returncode, told.stdout) == (4, "")
        assert told.stderr.startswith("gpusched: there is no group sweeep\n")
    command.run("group", "empty", "--at-most", "2")
    assert command.run("wait", "--group", "empty").returncode == 0


def test_a_job_that_waits_changes_its_group_and_one_that_is_queued_again_keeps_it(command: Command) -> None:
    first = sweep(command, "--hold")
    again = command.run("rerun", first, "--hold").stdout.strip()
    assert command.run("edit", first, "--group", "none").returncode == 0
    assert [jobs(command)[one]["group"] for one in (first, again)] == [None, "sweep"]
    assert command.run("edit", first, "--group", "other").returncode == 0
    assert list(group(command)) == ["other", "sweep"]


def test_what_makes_no_sense_is_refused_with_a_way_out(command: Command) -> None:
    for words, message in (
        (("group", "--pause"), "no group is named"),
        (("group", "sweep", "--pause", "--resume"), "--pause and --resume exclude each other"),
        (("group", "sweep", "--at-most", "0"), "at_most: '0' is no limit"),
        (("group", "sweep", "--at-most", "some"), "or none; to let no job of it start, pause it"),
        (("group", "", "--at-most", "2"), "name: ''"),
        (("run", "-d", "--group", "", "--", "true"), "--group: it is empty"),
        (("run", "-d", "--group", "x" * 201, "--", "true"), "--group: 201 characters are too many"),
        (("launch", "snake", "--group", "sweep"), "--group belongs to a job in the queue"),
        (("stop", "--all", "--group", "sweep"), "--all excludes --last, --state and --group"),
        (("groups",), "to limit, pause or resume a group: gpusched group NAME"),
    ):
        told = command.run(*words)
        assert (told.returncode, message in told.stderr) == (2, True), (words, told.stderr)


def test_an_odd_name_is_drawn_and_quoted_so_that_the_way_out_can_be_typed(command: Command) -> None:
    assert "a b?" in command.run("group", "a b\x1b", "--pause").stdout
    name = queue(command, "--group", "a b", *SLEEP)
    until_state(command, name, "running")
    told = command.run("group", "a b", "--pause")
    assert "gpusched stop --group 'a b'" in told.stderr
