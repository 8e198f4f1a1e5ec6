"""What was measured of the queue, as a part of docs/benchmarks.md, and as a picture."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.queue_trace.page import Measured, Row, load, of_seeds, part, store
from bench.queue_trace.picture import draw

EASY = "EASY, limits 1 to 5 times too long"


def waits(queue: str, hours: float, *, large: float = 50.0) -> list[Row]:
    figures = {"p95 wait h": 4 * hours, "large wait h": large, "use %": 80.0}
    of: dict[str, str | int | float] = {"devices": 8, "load": 0.9, "queue": queue}
    return [(of, {"mean wait h": hours + seed, **figures}) for seed in (-0.5, 0.5)]


def rows() -> list[Row]:
    return [
        *waits("gpusched, commands repeated, spread 0.5", 3.0),
        *waits("gpusched, shapes", 9.0, large=70.0),
        *waits("FIFO", 60.0, large=60.0),
        *waits(EASY, 6.0),
    ]


def test_the_page_has_means_goals_and_what_each_row_is_of(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    store("queue", of_seeds(rows()), path)
    store("pass", of_seeds([({"devices": 64, "waiting": 10_000, "limits": "none"}, {"full host": 31.0})]), path)
    store("history", of_seeds([({"ended": 100_000}, {"at the start": 16.0, "each": 0.002})]), path)
    told = part(load(path))
    assert "8 GPUs, 90% load (2 seeds, 20" in told
    assert "110% load" not in told
    assert "| **gpusched, commands repeated, spread 0.5** | 3 ± 0.98 | 12 | 50 | 80 |  |  | 0.50 |" in told
    assert f"mean wait of commands repeated, spread 0.5, by that of {EASY} | met: 0.50, at most 0.7 wanted |" in told
    assert "large wait of shapes, by that of FIFO | not met: 1.17, at most 1 wanted |" in told
    assert "64 GPUs, 90%: mean wait of shapes, by that of" in told
    assert "not measured" in told
    assert "| 64 devices, all full, 10,000 waiting, limits: none | 31 |  |" in told
    assert "| 100,000 | 16 | 0.002 |" in told


def test_what_is_measured_again_replaces_only_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    store("queue", of_seeds(rows()), path)
    store("queue", of_seeds(waits("FIFO", 70.0)), path)
    means = {str(row.of["queue"]): row.mean("mean wait h") for row in load(path)["queue"]}
    assert means == {"gpusched, commands repeated, spread 0.5": 3, "gpusched, shapes": 9, "FIFO": 70, EASY: 6}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_seeds_that_are_added_later_give_the_means_and_intervals_of_all(first: list[float], more: list[float]) -> None:
    def measured(values: list[float]) -> list[Measured]:
        return of_seeds([({"queue": "FIFO"}, {"mean wait h": value}) for value in values])

    with TemporaryDirectory() as folder:
        path = Path(folder) / "queue.json"
        store("queue", measured(first), path)
        store("queue", measured(more), path, first_seed=len(first))
        ((together,), (whole,)) = load(path)["queue"], measured([*first, *more])
        assert together.seeds == whole.seeds
        assert together.figures["mean wait h"] == pytest.approx(whole.figures["mean wait h"], abs=1e-6)
        with pytest.raises(ValueError, match="seeds are there"):
            store("queue", measured(more), path, first_seed=len(first))


def test_a_picture_is_drawn_of_it(tmp_path: Path) -> None:
    frontier: list[Row] = [
        ({"devices": 8, "load": 0.9, "queue": f"shapes, most_delay {days}d"}, {"mean wait h": 9.0 - days})
        for days in (1, 2)
    ]
    draw({"queue": of_seeds(rows()), "frontier": of_seeds(frontier)}, tmp_path / "queue.png")
    assert (tmp_path / "queue.png").read_bytes().startswith(b"\x89PNG")
    draw({}, tmp_path / "nothing.png")
    assert not (tmp_path / "nothing.png").exists()
