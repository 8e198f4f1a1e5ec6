"""`gpusched why`: the whole answer to why a job waits, on one screen, of a real daemon."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched.api.queue
from gpusched.model.status import JobState, JobStatus
from gpusched.model.why import Why
from gpusched.render.why import draw_why
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.cli.queue import until_state

MACHINE = ("--machine", "2x16GiB")


def a_full_machine(command: Command) -> None:
    """run-1 has one device and most of run-2's is left; run-3 waits for both, and run-4 for half of one."""
    command.run("run", "-d", *MACHINE, "--", "sleep", "1000")
    command.run("run", "-d", *MACHINE, "--fraction", "0.7", "--", "sleep", "1000")
    until_state(command, "run-1", "running")
    until_state(command, "run-2", "running")
    command.run("run", "-d", *MACHINE, "--num-gpus", "2", "--", "sleep", "1000")
    command.run("run", "-d", *MACHINE, "--fraction", "0.5", "--gpus", "1", "--", "sleep", "1000")


def test_it_shows_place_start_and_what_would_let_it_start_now(command: Command) -> None:
    a_full_machine(command)

    head, behind = (command.run("why", name).stdout.splitlines() for name in ("run-3", "run-4"))

    assert head[0] == "run-3 queued: sleep 1000"
    assert head[1].startswith(
        "  why        needs 2 whole GPUs; GPU 0 has 0 of 16057 MiB free, 16057 MiB leased to run-1"
    )
    assert head[2] == "  place      1 of 2 jobs that wait for this machine"
    assert head[3].startswith("  starts     in ")
    assert "; 80 % between " in head[3]
    assert behind[2:4] == ["  place      2 of 2 jobs that wait for this machine", "  before it  run-3"]


def test_as_json_and_in_python_it_is_the_same(command: Command) -> None:
    a_full_machine(command)
    command.run("stop", "run-3")

    found = json.loads(command.run("why", "run-4", "--json").stdout)
    why = gpusched.api.queue.why("run-4", settings=load_settings(command.env))

    assert (found["place"], found["waiting"], found["ahead"]) == (1, 1, [])
    assert found["ways"] == ["--fraction 0.3"] == list(why.ways)
    assert len(found["starts"]) == len(why.starts) == 24
    assert why.start() in why.starts
    assert repr(why).startswith("run-4 queued: sleep 1000\n  why ")


@pytest.mark.parametrize(("starts", "line"), [(2, "in about 1h00m, roughly: to find out"), (24, "in 1h00m")])
def test_few_futures_are_no_certainty(starts: int, line: str) -> None:
    job = JobStatus(id="run-1", workload="run", state=JobState.QUEUED, counts=(1,), replicas=(), run_dir="/")
    why = Why(job=job, place=1, waiting=1, starts=(3600.0,) * starts)
    (shown,) = (text.plain for text in draw_why(why, 0.0, None) if text.plain.startswith("  starts"))
    assert shown.startswith(f"  starts     {line}")


def test_of_a_job_that_does_not_wait_or_may_not_start_there_is_only_that(command: Command) -> None:
    command.run("run", "-d", *MACHINE, "--", "sleep", "1000")
    command.run("run", "-d", *MACHINE, "--hold", "--", "sleep", "1000")
    until_state(command, "run-1", "running")

    assert command.run("why", "run-1").stdout == "run-1 running: sleep 1000\n"
    assert command.run("why", "run-2").stdout == (
        "run-2 held: sleep 1000\n  why        held; let it go with: gpusched release run-2\n"
    )
    assert command.run("why", "run-9").returncode == 4
    assert json.loads(command.run("why", "run-1", "--json").stdout)["place"] is None


def test_in_a_narrow_terminal_no_line_is_wider_and_no_word_is_lost(command: Command) -> None:
    a_full_machine(command)
    why = gpusched.api.queue.why("run-4", settings=load_settings(command.env))

    narrow, wide = ([line.plain for line in draw_why(why, 0.0, width)] for width in (50, None))

    assert all(len(line) <= 50 for line in narrow)
    assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(wide).split())


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_more_probably_is_never_earlier(starts: list[float | None], one: float, other: float) -> None:
    why = Why(
        job=JobStatus(id="run-1", workload="run", state=JobState.QUEUED, counts=(), replicas=(), run_dir="/"),
        starts=tuple(starts),
    )
    low, high = (why.start(probability) for probability in sorted((one, other)))
    assert high is None or (low is not None and low <= high)
    known = [start for start in starts if start is not None]
    assert why.start(1.0) == (None if len(known) < len(starts) else max(known))


def test_a_job_that_has_failed_or_was_cancelled_shows_why_and_where_to_read_more(command: Command) -> None:
    command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", "echo it is broken >&2; exit 3")
    waits = command.run("run", "-d", "--num-gpus", "0", "--after", "run-1", "--", "true")
    assert waits.returncode == 0, waits.stderr
    until_state(command, "run-2", "cancelled")
    assert command.run("why", "run-1").stdout.splitlines()[1:] == [
        "  why        command.0 crashed with code 3: it is broken",
        "  see        gpusched logs run-1",
    ]
    assert "run-1, which it was to follow, has failed" in command.run("why", "run-2").stdout


def test_when_it_starts_stands_there_once(command: Command) -> None:
    a_full_machine(command)
    text = command.run("why", "run-3").stdout
    assert text.count("in ") >= 1
    assert "expected to start" not in text.splitlines()[1]
