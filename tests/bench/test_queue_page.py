"""What was measured of the queue, as a part of docs/benchmarks.md, and as a picture."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.queue_trace.page import part
from bench.queue_trace.picture import draw
from bench.queue_trace.results import Measured, Row, load, of_seeds, ratio, store

EASY = "EASY, limits 1 to 5 times too long"


def waits(queue: str, hours: float, *, large: float = 50.0) -> dict[int, list[Row]]:
    """Two seeds: half an hour less, and half an hour more."""
    of: dict[str, str | int | float] = {"devices": 8, "load": 0.9, "jobs": 2000, "queue": queue}
    figures = {"p95 wait h": 4 * hours, "large wait h": large, "use %": 80.0}
    late = {"heads past the bound": 2.0, "beyond the bound": 0.0} if queue.startswith("gpusched") else {}
    return {seed: [(of, {"mean wait h": hours + seed - 0.5, **figures, **late})] for seed in (0, 1)}


def together(*queues: dict[int, list[Row]]) -> dict[int, list[Row]]:
    return {seed: [row for queue in queues for row in queue[seed]] for seed in (0, 1)}


def rows() -> dict[int, list[Row]]:
    return together(
        waits("gpusched, commands repeated, spread 0.5", 3.0),
        waits("gpusched, shapes", 9.0, large=70.0),
        waits("FIFO", 60.0, large=60.0),
        waits(EASY, 6.0),
    )


def test_the_page_has_means_goals_and_what_each_row_is_of(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    of: dict[str, str | int | float] = {"devices": 64, "waiting": 10_000, "limits": "none", "needs": "126 needs"}
    store("queue", of_seeds(rows()), path)
    store("pass", of_seeds({0: [(of, {"full host": 31.0, "longest": 40.0})]}), path)
    full = {"gpusched launch -d": 80.0, "best fit": 81.0, "worst fit": 80.0}
    of_saturation: dict[str, str | int | float] = {"devices": 4, "tasks": "default"}
    full_rows = {seed: [(of_saturation, full | {"worst fit": 80.0 + 2 * seed})] for seed in (0, 1)}
    store("saturation", of_seeds(full_rows), path)
    store("history", of_seeds({0: [({"ended": 100_000}, {"at the start": 16.0, "each": 0.002})]}), path)
    page = part(load(path))
    assert "8 GPUs, 90% load (2,000 jobs, 2 seeds, 20" in page
    assert "110% load" not in page
    assert "| **gpusched, commands repeated, spread 0.5** | 3 ± 6.4 | 12 | 50 |  | 80 |  |  | 0.50 ± 0.53 |" in page
    assert f"spread 0.5, by that of {EASY} | met, within the spread: 0.50 ± 0.53, at most 0.7" in page
    assert "large wait of shapes, by that of FIFO | not met: 1.17 ± 0.00, at most 1 wanted |" in page
    assert "no head waits beyond the bound on its delay | met: 0 of 8 heads that were late by more" in page
    assert "64 GPUs, 90%: mean wait of shapes, by that of" in page
    assert "not measured" in page
    assert "| 64 devices, 10,000 waiting, limits: none, 126 needs |  | 31 |  | 40 |" in page
    assert "| 100,000 | 16 | 0.002 |" in page
    assert "| a pass over 10,000 waiting jobs, all devices full: 126 needs | met: 31 ms in the slowest case" in page
    assert "| a prediction after 100,000 jobs | met: 0.002 ms" in page
    assert "| 4 GPUs, default: how full launches of the queue get | not met: 80.00 %, best fit 81.00;" in page
    assert "| 81 |" in page  # "worst fit" is a mean, as the others are


def test_the_page_has_a_table_of_each_other_measure(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    store("queue", of_seeds(rows()), path)
    of: dict[str, str | int | float] = {"devices": 8, "load": 0.9, "jobs": 2000}
    large = {"large wait h": 5.0, "worst large wait h": 9.0, "heads past the bound": 3.0, "beyond the bound": 0.0}
    stream: list[Row] = [(of | {"queue": "gpusched, shapes"}, large), (of | {"queue": "FIFO"}, {"large wait h": 10.0})]
    store("stream", of_seeds({0: stream}), path)
    bounds = {"spread 1, most_delay 1d": 3.0, "spread 1, most_delay 2d": 2.0}
    store(
        "frontier",
        of_seeds({0: [(of | {"queue": name}, {"mean wait h": wait}) for name, wait in bounds.items()]}),
        path,
    )
    often = {"shapes, passes at arrivals and ends": 4.0, "shapes, passes each minute between, too": 4.4}
    store(
        "between", of_seeds({0: [(of | {"queue": name}, {"mean wait h": wait}) for name, wait in often.items()]}), path
    )
    near = {"ours": 60.0, "last two": 50.0}
    store("predictions", of_seeds({0: [({"commands": "spread 1"}, near)]}), path)
    when = {"within": 70.0, "sooner": 10.0, "later": 15.0, "unknown": 5.0, "off h": 1.5}
    store("forecasts", of_seeds({0: [(of | {"commands": "shapes"}, when)]}), path)
    page = part(load(path))
    assert "| 8 GPUs, 90%: gpusched, shapes |  | 5 | 9 |  |  | 3 | 0 | 0.50 |" in page
    assert "| 8 GPUs, 90%: spread 1, most_delay 1d | 3 |  |  |  |  |  |  | 1.50 |" in page
    assert "| 8 GPUs, 90%: shapes, passes each minute between, too | 4.4 |  |  |  |  | 1.10 |" in page
    assert "| spread 1 | 60 | 50 |" in page
    assert "| 8 GPUs, 90%: shapes | 70 | 10 | 15 | 5 | 1.5 |" in page
    assert "| predictions, spread 1: nearer than the last two of the same | met: 60.0 % to 50.0 % |" in page


def test_what_was_measured_last_can_be_read_and_is_a_part_of_the_page() -> None:
    assert part(load()).startswith("## The queue")


def test_what_is_measured_again_replaces_only_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    store("queue", of_seeds(rows()), path)
    store("queue", of_seeds(waits("FIFO", 70.0)), path)
    means = {str(row.of["queue"]): row.mean("mean wait h") for row in load(path)["queue"]}
    assert means == {"gpusched, commands repeated, spread 0.5": 3, "gpusched, shapes": 9, "FIFO": 70, EASY: 6}
    assert path.read_text().count("\n") == len(means) + 4  # a row a line, so that a change is seen


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_seeds_that_are_added_later_give_the_same_as_all_at_once(first: list[float], more: list[float]) -> None:
    def measured(values: list[float], begin: int = 0) -> list[Measured]:
        return of_seeds({begin + i: [({"queue": "FIFO"}, {"mean wait h": value})] for i, value in enumerate(values)})

    with TemporaryDirectory() as folder:
        path = Path(folder) / "queue.json"
        store("queue", measured(first), path)
        store("queue", measured(more, len(first)), path, add=True)
        assert load(path)["queue"] == measured([*first, *more])
        store("queue", measured(more, len(first)), path, add=True)
        assert load(path)["queue"] == measured([*first, *more])


def test_seeds_are_paired_so_that_what_makes_one_hard_for_both_is_no_doubt() -> None:
    def measured(*values: float) -> Measured:
        return of_seeds({seed: [({}, {"mean wait h": value})] for seed, value in enumerate(values)})[0]

    assert ratio(measured(1, 10, 100), measured(2, 20, 200), "mean wait h") == (0.5, 0)
    by, half = ratio(measured(1, 3), measured(2, 2), "mean wait h") or (0, 0)
    assert by == 1
    assert half == pytest.approx(12.706 * 2**0.5 / 2**0.5 / 2)  # the residuals are -1 and 1, and of freedom one degree
    assert ratio(measured(1), measured(2), "mean wait h") == (0.5, None)
    assert ratio(measured(1, 2), measured(0, 0), "mean wait h") is None
    assert ratio(measured(1, 2), measured(1, 2), "p95 wait h") is None


def test_the_worst_of_all_seeds_is_no_mean() -> None:
    row = of_seeds({seed: [({}, {"worst large wait h": value})] for seed, value in enumerate((1.0, 9.0, 5.0))})[0]
    assert (row.mean("worst large wait h"), row.half_width("worst large wait h")) == (9, 0)


def test_a_picture_is_drawn_of_it(tmp_path: Path) -> None:
    frontier: dict[int, list[Row]] = {
        0: [
            ({"devices": 8, "load": 0.9, "queue": f"shapes, most_delay {days}d"}, {"mean wait h": 9.0 - days})
            for days in (1, 2)
        ]
    }
    draw({"queue": of_seeds(rows()), "frontier": of_seeds(frontier)}, tmp_path / "queue.png")
    assert (tmp_path / "queue.png").read_bytes().startswith(b"\x89PNG")
    draw({}, tmp_path / "nothing.png")
    assert not (tmp_path / "nothing.png").exists()
