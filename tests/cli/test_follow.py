"""`gpusched launch` in a terminal: what it draws must never end the job that it draws."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpusched.render.chart import Curve, draw_chart
from tests.cli.command import Command
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_S, until

Launch = Callable[..., Terminal]


@pytest.fixture
def launch(command: Command) -> Iterator[Launch]:
    """Start `gpusched launch WORKLOAD` in a terminal; what is kept of a crash would lie in the test's home."""
    begun: list[Terminal] = []

    def begin(workload: str, **env: str) -> Terminal:
        environment = command.env | {"TMPDIR": str(command.home), "TERM": "xterm-256color", **env}
        begun.append(Terminal([sys.executable, "-m", "gpusched", "launch", workload], environment))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def crashes(command: Command) -> list[Path]:
    return list(command.home.glob("gpusched-crash-*"))


def test_reports_that_cannot_be_drawn_do_not_end_the_job(command: Command, launch: Launch) -> None:
    terminal = launch(command.toy("odd_reports.py"))

    shown = terminal.see("odd ?[2J")
    (command.state / "jobs" / "toy-1" / "seen").touch()
    shown += terminal.see("toy-1 succeeded")

    assert "a game" in shown
    assert terminal.process.wait(PATIENCE_S) == 0
    assert crashes(command) == []
    status = command.run("status", "--json").stdout
    json.loads(status, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))


def test_a_reason_with_brackets_is_no_markup(command: Command, launch: Launch) -> None:
    workload = command.home / "workload.toml"
    workload.write_text('name = "toy"\n[roles.part]\ncommand = ["sh", "-c", "echo /no/[/bold]/such; exit 1"]\n')

    terminal = launch(str(workload))

    terminal.see("code 1: /no/[/bold]/such")
    terminal.see("toy-1 failed")
    assert terminal.process.wait(PATIENCE_S) == 1
    assert crashes(command) == []


def test_a_terminal_that_cannot_draw_gets_lines(command: Command, launch: Launch) -> None:
    terminal = launch(command.toy("for_ever.py"), TERM="dumb")

    shown = terminal.see("actor.1 running pid")
    terminal.type(b"\x03")
    shown += terminal.see("toy-1 cancelled")

    assert "\x1b" not in shown


def test_status_does_not_draw_in_place_where_that_cannot_be(command: Command) -> None:
    terminal = Terminal([sys.executable, "-m", "gpusched", "status", "--watch"], command.env | {"TERM": "dumb"})

    shown = terminal.see("hint:")

    assert "--watch needs a terminal that can move its cursor" in shown
    assert "\x1b" not in shown
    assert terminal.process.wait(PATIENCE_S) == 2
    terminal.close()


def test_a_terminal_that_goes_ends_the_job_and_nothing_is_called_an_error(command: Command, launch: Launch) -> None:
    terminal = launch(command.toy("for_ever.py"))
    terminal.see("3 of 3 processes running")

    os.close(terminal.inside)
    os.close(terminal.outside)
    terminal.process.wait(PATIENCE_S)
    until(lambda: not command.running(), "no process left")
    terminal.inside, terminal.outside = os.pipe()

    assert command.job()["state"] == "cancelled"
    assert crashes(command) == []


def test_a_curve_of_a_week_stays_small_and_keeps_its_course() -> None:
    curve = Curve()
    for second in range(100_000):
        curve.add(float(second), float(second))

    times = [time for time, _ in curve.points]
    assert 2048 <= len(times) <= 4096
    assert times == list(range(0, 32 * len(times), 32))
    assert times[-1] > 99_900


def test_a_clock_that_was_set_back_does_not_break_the_chart() -> None:
    assert draw_chart([(900.0, 1.0), (3.0, 2.0), (901.0, 7.0)], 40, 4, unicode=False)


def test_how_many_are_ready_is_seen_while_they_start(command: Command, launch: Launch) -> None:
    run_dir = command.state / "jobs" / "toy-1"
    terminal = launch(command.toy("ready_in_turn.py"))

    terminal.see("2 of 3 ready")
    (run_dir / "go").touch()
    terminal.see("all 3 processes ready after")
    (run_dir / "end").touch()
    terminal.see("toy-1 succeeded")


def test_without_a_terminal_a_line_says_how_many_are_ready_and_a_last_one_when_all_are(
    command: Command, tmp_path: Path
) -> None:
    run_dir, told = command.state / "jobs" / "toy-1", tmp_path / "told"
    with told.open("w") as output:
        argv = [sys.executable, "-m", "gpusched", "launch", command.toy("ready_in_turn.py")]
        launched = subprocess.Popen(argv, env=command.env, stdout=output)
    until(lambda: "2 of 3 ready" in told.read_text(), "two are ready")
    (run_dir / "go").touch()
    until(lambda: "all 3 processes ready after" in told.read_text(), "all are ready")
    assert "running, " not in command.run("status").stdout
    (run_dir / "end").touch()

    assert launched.wait(PATIENCE_S) == 0
    assert told.read_text().count("all 3 processes ready") == 1


def test_status_and_ps_say_how_many_are_ready_as_long_as_not_all_are(command: Command) -> None:
    run_dir = command.state / "jobs" / "toy-1"
    command.run("launch", "-d", command.toy("ready_in_turn.py"))
    until(lambda: "2 of 3 ready" in command.run("status").stdout, "status says so")

    assert "running, 2 ready" in command.run("ps").stdout
    ready = {one["name"]: one["ready"] for one in json.loads(command.run("ps", "--json").stdout)["jobs"][0]["replicas"]}
    assert (ready["learner.0"], ready["actor.0"] is None, ready["actor.1"] is None) == (None, False, False)
    (run_dir / "go").touch()
    until(lambda: "running, 2 ready" not in command.run("ps").stdout, "all are ready")
    (run_dir / "end").touch()
    assert command.run("wait", "toy-1").returncode == 0
