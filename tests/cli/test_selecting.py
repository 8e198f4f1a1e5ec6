"""Jobs by name, by glob, by state and the last one, the same for every command that takes jobs."""

import json
import os
import signal

import pytest

from tests.cli.command import Command
from tests.cli.queue import until_state


def submit(command: Command, *words: str) -> str:
    return command.run("run", "-d", "--num-gpus", "0", *words, "--", "sleep", "600").stdout.strip()


def states(command: Command, *words: str) -> dict[str, str]:
    told = command.run("ps", "--json", *words)
    assert told.returncode == 0, told.stderr
    return {job["id"]: job["state"] for job in json.loads(told.stdout)["jobs"]}


@pytest.fixture
def queue(command: Command) -> dict[str, str]:
    """Held jobs by name, in the order in which they came."""
    names = ("train", "train", "eval")
    return dict(
        zip(("train", "train.2", "eval"), (submit(command, "--hold", "--name", one) for one in names), strict=True)
    )


def test_those_that_are_held_are_meant_by_the_state_that_is_shown(command: Command, queue: dict[str, str]) -> None:
    waits = submit(command, "--after", queue["eval"])
    assert list(states(command, "--state", "held")) == list(queue.values())
    assert list(states(command, "--state", "held,queued")) == [*queue.values(), waits]
    assert list(states(command, "--state", "held", "--ended", "10")) == list(queue.values()), "none that has ended"
    assert command.run("release", "--state", "held").stdout.count("is queued") == 3
    assert command.run("ps", "--state", "held").stdout == "no job matches; all: gpusched ps --all\n"
    told = command.run("ps", "--state", "halted")
    assert (told.returncode, ", held" in told.stderr) == (2, True)
    told = command.run("prune", "--older", "1h", "--state", "held")
    assert (told.returncode, ", held" in told.stderr) == (2, False), "none that has ended is held"


def test_jobs_are_named_as_people_named_them(command: Command, queue: dict[str, str]) -> None:
    assert list(states(command, "train")) == [queue["train"]]
    assert list(states(command, "train*", "eval")) == list(queue.values())
    assert command.run("release", "eval").stdout == f"{queue['eval']} is queued\n"
    until_state(command, queue["eval"], "running")
    assert command.run("hold", "run-*").stdout.count("is held") == 2  # the third has started
    told = command.run("why", "train.2")
    assert (told.returncode, queue["train.2"] in told.stdout) == (0, True)
    told = command.run("stop", "train*")
    assert sorted(line.split()[0] for line in told.stdout.splitlines()) == sorted(list(queue.values())[:2])
    assert command.run("wait", "train").returncode == 1  # it was cancelled
    assert command.run("logs", "eval").returncode == 0


def test_a_name_that_means_nothing_or_too_much_is_an_error_with_a_way_out(
    command: Command, queue: dict[str, str]
) -> None:
    told = command.run("stop", "val")
    assert (told.returncode, told.stderr) == (4, "gpusched: there is no job val\n  hint: see `gpusched ps --all`\n")
    told = command.run("hold", "x*")
    assert (told.returncode, "no job that waits matches x*" in told.stderr) == (4, True)
    told = command.run("wait", "x*")
    assert (told.returncode, "no job that runs or waits matches x*" in told.stderr) == (4, True)
    for words in (("logs", "train*"), ("why", "train*")):
        told = command.run(*words)
        assert told.returncode == 2
        assert f"jobs: {queue['train']}, {queue['train.2']}\n  hint: name one of them" in told.stderr
    for verb in ("hold", "wait", "release", "logs", "why", "stop"):
        told = command.run(verb)
        assert (told.returncode, "no job is named" in told.stderr) == (2, True), verb


def test_the_last_one_and_those_in_a_state(command: Command, queue: dict[str, str]) -> None:
    assert command.run("release", "--last").stdout == f"{queue['eval']} is queued\n"
    assert list(states(command, "--last")) == [queue["eval"]]
    command.run("logs", "--last")
    assert command.run("stop", "--state", "running,starting", "--json").returncode == 0
    assert states(command, "--state", "cancelled") == {queue["eval"]: "cancelled"}
    assert list(states(command, "--state", "queued")) == [queue["train"], queue["train.2"]]
    assert states(command, "--state", "failed") == {}
    assert command.run("wait", "--state", "failed").returncode == 0
    told = command.run("ps", "--state", "bad")
    assert (told.returncode, "there is no state 'bad'" in told.stderr) == (2, True)


def test_what_ended_is_found_by_time_and_text(command: Command) -> None:
    first = command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", "true lr=1e-3").stdout.strip()
    other = command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", "exit 3").stdout.strip()
    assert command.run("wait", first, other).returncode == 1
    assert states(command, "--text", "lr=1e-3") == {first: "succeeded"}
    assert states(command, "--state", "failed", "--since", "1h") == {other: "failed"}
    assert len(states(command, "--since", "2020-01-01", "--ended", "1")) == 1
    told = command.run("ps", "--since", "soon")
    assert (told.returncode, "soon" in told.stderr) == (2, True)


def ended(command: Command, *words: str) -> str:
    job = command.run("run", "-d", "--num-gpus", "0", *words).stdout.strip()
    command.run("wait", job)
    return job


def test_without_a_daemon_jobs_are_known_by_ids_names_and_globs_and_shown_with_their_commands(command: Command) -> None:
    first, later = (ended(command, "--name", name, "--", "echo", name) for name in ("train", "trial"))
    shown = command.run("ps", "--all").stdout
    command.run("daemon", "stop")
    without = command.run("ps", "--all").stdout
    assert [line.split()[:3] for line in without.splitlines()] == [line.split()[:3] for line in shown.splitlines()]
    assert [line.split()[-2:] for line in without.splitlines()[1:]] == [["echo", "trial"], ["echo", "train"]]
    assert list(states(command, "run-*")) == list(states(command, "tr*")) == [later, first]
    assert list(states(command, "train")) == [first]
    again = ended(command, "--name", "train", "--", "true")
    odd = ended(command, "--name", "lr[1]", "--", "true")
    sweep = command.run("sweep", "-d", "--param", "x=1,2", "--num-gpus", "0", "--name", "grid", "--", "echo", "{x}")
    command.run("wait", array := sweep.stdout.split()[0])
    command.run("daemon", "stop")
    assert list(states(command, "train")) == [again], "the latest of that name"
    assert list(states(command, "lr[1]", "grid", "train")) == [odd, array, again], "in the order of the question"
    assert list(states(command, f"{array}*")) == [array], "and no member"
    assert list(states(command, f"{array}[1]", again)) == [f"{array}[1]", again]
    assert set(states(command, f"{array}[1]", "lr*")) == {f"{array}[1]", odd}
    told = command.run("ps", "eval")
    assert (told.returncode, "there is no job eval" in told.stderr) == (4, True)


def test_a_job_follows_one_by_its_name(command: Command) -> None:
    first = submit(command, "--name", "prepare", "--hold")
    second = submit(command, "--after", "prepare")
    told = command.run("ps", "--json", second)
    assert json.loads(told.stdout)["jobs"][0]["after"] == [first]
    told = command.run("run", "-d", "--after", "nothing", "--", "true")
    assert (told.returncode, "there is no job nothing to start after" in told.stderr) == (4, True)


def test_an_option_that_would_be_passed_over_is_refused(command: Command, queue: dict[str, str]) -> None:
    for words, message in (
        (("stop", "--all", "--state", "queued"), "--all excludes --last, --state and --group"),
        (("stop", "--state", ""), "there is no state ''"),
        (("prune", "--older", "1h", "--state", ""), "there is no state ''"),
        (("ps", "--last", "--ended", "3"), "--last is one job"),
    ):
        told = command.run(*words)
        assert (told.returncode, message in told.stderr) == (2, True), words
    assert list(states(command, "--state", "queued")) == list(queue.values())


def test_a_job_is_called_by_its_name_though_it_looks_like_a_glob(command: Command) -> None:
    odd, other = submit(command, "--hold", "--name", "lr[1e-3]"), submit(command, "--hold", "--name", "lr1")
    assert list(states(command, "lr[1e-3]")) == [odd]
    assert command.run("release", "lr[1e-3]").stdout == f"{odd} is queued\n"
    assert list(states(command, "lr[1]")) == [other]


def test_a_long_name_is_numbered_and_read_again(command: Command) -> None:
    name = "x" * 200
    ids = [submit(command, "--hold", "--name", name) for _ in range(2)]
    os.kill(command.daemon(), signal.SIGKILL)
    command.daemon()
    assert list(states(command, "x*")) == ids
    told = command.run("stop", "x" * 300)
    assert (told.returncode, "there is no job" in told.stderr) == (4, True)
