"""The runner: every row in turn, what fails costs only itself, and whoever interrupts it finds no process left."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.busy import BUSY, beside_busy_loops, busy_part, busy_words
from bench.fresh import ROOT, Failed, fresh
from bench.run import Measuring, Tally, compile_all, seconds_left, sections
from bench.screen import Screen, span
from bench.section import Figure, Goal, Measured, Missing, Row, Section
from bench.sections import memory
from tests.patience import PATIENCE_S, until


def section(*rows: Row, goals: tuple[Goal, ...] = (), rounds: int = 2) -> Section:
    figures = {"time": Figure("time", "s", "less")}
    return Section(name="some", title="Some", about="", figures=figures, rows=rows, goals=goals, rounds=rounds)


def test_rows_take_turns_and_a_slow_one_has_fewer() -> None:
    turns: list[str] = []

    def row(name: str, rounds: int | None = None) -> Row:
        def measure(_: bool) -> Measured:
            turns.append(name)
            return {"time": len(turns)}

        return Row(name, "ours", measure, rounds)

    measuring = Measuring(section(row("a"), row("b", 1), row("c"), rounds=2), quick=False)
    measuring.run(Screen(measuring.left_s))
    assert turns == ["a", "b", "c", "a", "c"]
    assert [one.values["time"] for one in measuring.result().rows] == [(1.0, 4.0), (2.0,), (3.0, 5.0)]


def test_a_row_that_no_goal_names_is_measured_three_times() -> None:
    rows = tuple(Row(name, "ours", lambda _: {"time": 1}) for name in ("a", "b", "c"))
    one = section(*rows, goals=(Goal("as good", "time", "a", "b"),), rounds=5)
    assert [tally.rounds for tally in Measuring(one, quick=False).tallies] == [5, 5, 3]


def test_a_row_may_give_the_parts_of_one_run() -> None:
    measuring = Measuring(section(Row("a", "ours", lambda _: {"time": [1, 2.5]})), quick=True)
    measuring.run(Screen(measuring.left_s))
    assert measuring.result().rows[0].values == {"time": (1.0, 2.5)}


def test_what_fails_or_is_missing_costs_only_its_row() -> None:
    def fails(_: bool) -> Measured:
        raise OSError("broken")

    def missing(_: bool) -> Measured:
        raise Missing("not installed")

    rows = (Row("a", "other", fails), Row("b", "other", missing), Row("c", "ours", lambda _: {"time": 1}))
    measuring = Measuring(section(*rows), quick=False)
    measuring.run(Screen(measuring.left_s))
    assert [(one.note, dict(one.values)) for one in measuring.result().rows] == [
        ("failed: broken", {}),
        ("left out: not installed", {}),
        (None, {"time": (1.0, 1.0)}),
    ]
    assert [tally.failed for tally in measuring.tallies] == [True, False, False]


def test_a_row_that_failed_after_a_while_says_so_beside_what_it_gave() -> None:
    given: list[int] = []

    def measure(_: bool) -> Measured:
        if given:
            raise OSError("broken")
        given.append(1)
        return {"time": 1}

    measuring = Measuring(section(Row("a", "ours", measure), rounds=3), quick=False)
    measuring.run(Screen(measuring.left_s))
    row = measuring.result().rows[0]
    assert (dict(row.values), row.note) == ({"time": (1.0,)}, "failed: broken")


def test_what_is_not_measured_as_often_as_wanted_says_so() -> None:
    tally = Tally(Row("a", "ours", lambda _: {"time": 1}), 5)
    tally.measure(quick=False)
    assert tally.result().note == "measured 1 of 5 times"


@pytest.mark.parametrize("error", [OSError("no daemon"), SystemExit("no daemon")])
def test_a_section_that_cannot_begin_is_told_in_each_of_its_rows(error: BaseException, tmp_path: Path) -> None:
    @contextmanager
    def around() -> Iterator[None]:
        if tmp_path.exists():
            raise error
        yield

    rows = (Row("a", "ours", lambda _: {"time": 1}),)
    figures = {"time": Figure("time", "s", "less")}
    measuring = Measuring(
        Section(name="some", title="", about="", figures=figures, rows=rows, around=around), quick=False
    )
    measuring.run(Screen(measuring.left_s))
    assert measuring.result().rows[0].note == "failed: no daemon"


def test_the_time_left_is_told_by_what_each_row_took() -> None:
    rows = [Tally(Row(name, "ours", lambda _: {}), rounds) for name, rounds in (("a", 3), ("b", 1))]
    assert seconds_left(rows, 40) == 40
    rows[0].taken += [1.0, 2.0]
    assert seconds_left(rows, 40) == 2 + 10
    rows[1].note = "left out: not here"
    assert seconds_left(rows, 40) == 2
    assert (span(40), span(720)) == ("40 s", "12 min")


def test_every_section_has_rows_and_figures_for_its_goals() -> None:
    for one in sections([]):
        rows = {row.name for row in one.rows}
        for goal in one.goals:
            assert goal.figure in one.figures, (one.name, goal.text)
            assert {goal.row, goal.than or goal.row} <= rows, (one.name, goal.text)
            assert (goal.than is None) == (goal.bound is not None), (one.name, goal.text)


def test_all_sections_together_stay_within_fifty_minutes_and_six() -> None:
    assert sum(one.takes_s for one in sections([])) <= 50 * 60
    assert sum(one.quick_takes_s for one in sections([])) <= 6 * 60


def test_a_section_on_a_busy_host_has_a_loop_for_each_cpu_as_long_as_it_is_measured() -> None:
    parts = list[float]()

    def measure(_: bool) -> Measured:
        until(lambda: busy_part(0.2) > BUSY, "the loops take CPU time")
        parts.append(len(loops()))
        return {"time": 1}

    def loops() -> list[Path]:
        found = (path for path in Path("/proc").glob("[0-9]*/cmdline") if read(path) == b"while True: pass")
        return [path for path in found if f"PPid:\t{os.getpid()}\n" in (path.parent / "status").read_text()]

    def read(path: Path) -> bytes:
        try:
            return path.read_bytes().rstrip(b"\0").rpartition(b"\0")[2]
        except OSError:
            return b""

    goal = Goal("at most a second", "time", "a", bound=1.0)
    one = beside_busy_loops(section(Row("a", "ours", measure), Row("b", "ours", measure)), ("a",), (goal,))
    assert (one.name, [row.name for row in one.rows], one.goals) == ("some_busy", ["a"], (goal,))
    measuring = Measuring(replace(one, rounds=1), quick=False)
    measuring.run(Screen(measuring.left_s))
    assert parts == [len(os.sched_getaffinity(0))], measuring.result()
    assert loops() == []


def test_it_is_told_how_busy_the_host_is() -> None:
    assert 0 <= busy_part(0.1) <= 1
    assert busy_words(0.02) == "This host is idle (others take 2% of its CPU time)."
    assert busy_words(0.5).startswith("This host is busy: what is measured now is marked so (others take 50%")


def test_an_unknown_section_is_told() -> None:
    with pytest.raises(SystemExit, match=r"no section nowhere: there are .*launch"):
        list(sections(["nowhere"]))


def test_a_measurement_in_a_process_of_its_own_gives_its_last_line_or_says_why_not() -> None:
    with pytest.raises(Failed, match="ended with code 1"):
        fresh("bench.peers.check_forks", "not a number", "1")


def test_nothing_of_a_measurement_stays_in_the_directory_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Failed, match="no figures after 2 s"):
        fresh("tests.bench.sleeper", str(tmp_path / "pids"), timeout_s=2)
    assert {path.name for path in tmp_path.iterdir()} <= {"pids"}


def test_the_three_rows_of_memory_are_one_run_when_that_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def fails(*words: str, timeout_s: float) -> Measured:
        runs.append((words, timeout_s))
        raise Failed("hung")

    monkeypatch.setattr(memory, "fresh", fails)
    memory._run.cache_clear()
    for row in memory.SECTION.rows:
        with pytest.raises(Failed, match="hung"):
            row.measure(True)
    memory._run.cache_clear()
    assert len(runs) == 1


def test_what_is_measured_is_compiled_before(tmp_path: Path) -> None:
    source = tmp_path / "gpusched" / "some.py"
    source.parent.mkdir()
    source.write_text("A = 1\n")
    compile_all(tmp_path)
    assert Path(cache_from_source(str(source))).exists()


INTERRUPTED = """
import sys
from bench.fresh import fresh
from bench.run import measure_all
from bench.section import Figure, Row, Section
rows = (
    Row("fast", "other", lambda quick: {"time": 1.5}),
    Row("slow", "ours", lambda quick: fresh("tests.bench.sleeper", sys.argv[1])),
)
one = Section(name="some", title="Some", about="", figures={"time": Figure("time", "s", "less")}, rows=rows)
sys.exit(measure_all([one], quick=True, write=False))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_prints_what_is_known_and_leaves_no_process(number: int, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    argv = [sys.executable, "-c", INTERRUPTED, str(pids)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(pids.exists, "the slow row is under way")
        run.send_signal(number)
        told, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130
    assert "1.5" in told
    assert "Traceback" not in errors
    for pid in pids.read_text().split():
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "it has ended")  # type: ignore[misc]
