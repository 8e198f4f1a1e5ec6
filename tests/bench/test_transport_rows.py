"""Rows of batch, reply and weights: each is measured in a process of its own, and gives what its table shows."""

from pathlib import Path

import pytest

from bench import rows
from bench.fresh import fresh
from bench.peers import reply, transport, weights
from bench.section import Missing, Section
from bench.sections import batch as batch_section
from bench.sections import reply as reply_section
from bench.sections import weights as weights_section
from tests.patience import PATIENCE_S

SECTIONS = [batch_section.SECTION, reply_section.SECTION, weights_section.SECTION]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_goals_are_of_rows_and_figures_that_are_there(section: Section) -> None:
    names = [row.name for row in section.rows]
    assert len(set(names)) == len(names)
    for goal in section.goals:
        assert goal.figure in section.figures
        assert {goal.row, goal.than or goal.row} <= set(names)


@pytest.mark.parametrize("row", [row for row in transport.ROWS if row != "pipe-lists"])
def test_each_way_carries_batches_whole_and_in_order(row: str) -> None:
    figures = fresh("bench.peers.transport", row, "--quick", timeout_s=PATIENCE_S)
    assert set(figures) == set(batch_section.SECTION.figures)
    assert 0 < figures["p50"] <= figures["p99"]


@pytest.mark.parametrize("row", list(reply.ROWS))
def test_each_way_replies(row: str) -> None:
    figures = fresh("bench.peers.reply", row, "--quick", timeout_s=PATIENCE_S)
    assert set(figures) == set(reply_section.SECTION.figures)


@pytest.mark.parametrize("row", [row for row in weights.ROWS if row not in {"file", "pickled-each", "pickled-once"}])
def test_each_way_gives_the_newest_weights_to_all(row: str) -> None:
    figures = fresh("bench.peers.weights", row, "--quick", timeout_s=PATIENCE_S)
    assert set(figures) == set(weights_section.SECTION.figures)


def test_a_row_of_ray_is_left_out_where_ray_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rows, "RAY_PYTHON", tmp_path / "python")
    with pytest.raises(Missing, match=r"make \.venv-ray"):
        rows.by_ray("bench.peers.ray_batch", "uint8")(True)
