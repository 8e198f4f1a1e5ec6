"""What the bench says of its figures: medians, ratios, goals, and the page that is made from JSON."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench.report import page
from bench.results import (
    Place,
    Results,
    RowResult,
    SectionResult,
    load,
    merged,
    save,
    short,
    times_better,
    verdict,
)
from bench.section import Figure, Goal

FIGURES = {
    "time": Figure("time", "s", "less"),
    "rate": Figure("rate", "1/s", "more"),
    "hung": Figure("hung", "", "less"),
}
PLACE = Place(cpu="a CPU", cores=2, memory_gib=24, kernel="6.1", versions={"python": "3.11"})


def section(*goals: Goal, name: str = "launch", date: str = "2026-01-02", **theirs: tuple[float, ...]) -> SectionResult:
    ours = RowResult(name="ours", kind="ours", values={"time": (1.0, 9.0, 2.0), "rate": (300.0,), "hung": (0.0,)})
    peer = RowResult(name="theirs", kind="original", values=theirs)
    gone = RowResult(name="Ray | actors", kind="other", note="left out: not\ninstalled")
    return SectionResult(
        name=name,
        title=f"About {name}",
        about="What is done.",
        figures=FIGURES,
        goals=goals,
        rows=(ours, peer, gone),
        rounds=3,
        date=date,
        seconds=90.0,
        place=PLACE,
    )


def test_twice_as_good_is_half_the_seconds_or_twice_the_rate() -> None:
    assert times_better(FIGURES["time"], 2.0, 4.0) == 2.0
    assert times_better(FIGURES["rate"], 300.0, 150.0) == 2.0
    assert times_better(FIGURES["time"], 0.0, 4.0) == float("inf")


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Goal("seven times", "time", "ours", "theirs", 7), "met: 7.5 times as good, at least 7 wanted"),
        (Goal("eight times", "time", "ours", "theirs", 8), "not met: 7.5 times as good, at least 8 wanted"),
        (Goal("level", "time", "ours", "theirs"), "met: 7.5 times as good, at least 1 wanted"),
        (Goal("twice the time at most", "time", "theirs", "ours", 0.5), "not met: 7.5 times as much, at most 2 wanted"),
        (Goal("half the rate", "rate", "theirs", "ours", 0.5), "not met: 0.333 times as much, at least 0.5 wanted"),
        (Goal("none hangs", "hung", "ours", bound=0), "met: 0, at most 0 wanted"),
        (Goal("a rate", "rate", "ours", bound=400), "not met: 300 1/s, at least 400 wanted"),
        (Goal("not there", "time", "ours", "Ray | actors"), "not measured: no whole figure of Ray | actors"),
        (Goal("not there", "time", "Ray | actors", "ours"), "not measured: no whole figure of Ray | actors"),
        (Goal("never was there", "time", "ours", "nobody"), "not measured: no whole figure of nobody"),
    ],
    ids=lambda one: one.text if isinstance(one, Goal) else "",
)
def test_a_goal_says_by_how_much_it_is_met_or_missed(goal: Goal, words: str) -> None:
    assert verdict(goal, section(goal, time=(15.0,), rate=(100.0,))).words == words


@pytest.mark.parametrize("place", [0, 1])
def test_no_goal_is_met_by_a_row_that_failed_after_a_while(place: int) -> None:
    goal = Goal("seven times", "time", "ours", "theirs", 7)
    whole = section(goal, time=(15.0,))
    rows = list(whole.rows)
    rows[place] = msgspec.structs.replace(rows[place], note="failed: no more")
    assert verdict(goal, msgspec.structs.replace(whole, rows=tuple(rows))).state == "not measured"


def test_numbers_are_told_with_three_digits() -> None:
    told = {
        12345.6: "12,346",
        123.4: "123",
        12.34: "12.3",
        1.234: "1.23",
        0.01234: "0.0123",
        0: "0",
        0.00001234: "0.000012",
    }
    assert {number: short(number) for number in told} == told


def test_the_page_has_medians_with_spread_ratios_goals_and_why_a_row_is_empty() -> None:
    goal = Goal("seven times", "time", "ours", "theirs", 7)
    told = page(Results((section(goal, time=(15.0,), rate=(100.0,)),)))
    assert "| **ours** | ours | 2 (1-9), 7.5 × | 300, 3 × | 0 |" in told
    assert "| theirs | original | 15 | 100 |  |" in told
    assert "| Ray \\| actors | other |  |  |  |" in told
    assert "Ray \\| actors: left out: not installed" in told
    assert "| seven times | met: 7.5 times as good, at least 7 wanted |" in told
    assert "- all: 2026-01-02, 2 minutes. a CPU, 2 cores, 24 GiB, Linux 6.1. python 3.11." in told


def test_what_was_measured_on_a_busy_host_is_marked() -> None:
    mark = "Measured on a busy host: others took 37% of its CPU time when it began."
    assert mark in page(Results((replace(section(), busy_part=0.37),)))
    for part in (None, 0.02):
        assert "busy host" not in page(Results((replace(section(), busy_part=part),)))


def test_a_section_that_is_measured_alone_replaces_only_its_part(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    save(
        path,
        merged(load(path), [section(name="loop"), section(name="launch"), section(name="new")], ["launch", "loop"]),
    )
    save(path, merged(load(path), [section(name="loop", date="2026-03-04")], ["launch", "loop"]))
    assert [(one.name, one.date) for one in load(path).sections] == [
        ("launch", "2026-01-02"),
        ("loop", "2026-03-04"),
        ("new", "2026-01-02"),
    ]
    assert page(load(path)).count("2026-03-04") == 1
