"""Long runs are told by their parts."""

import pytest

from bench.peers.curve import Point, figures


def test_steps_are_told_for_each_sixth_of_the_run_and_the_score_for_its_last_fifth() -> None:
    curve = [Point(20, 0, None), Point(30, 600, 1.0), Point(50, 1000, 3.0), Point(60, 2000, 5.0)]
    found = figures(curve, 60)
    assert found["steps"] == pytest.approx([0, 0, 60, 20, 20, 100])
    assert found["score"] == pytest.approx(4.0)


def test_a_run_that_was_counted_before_its_last_fifth_only_has_the_last_score_there_is() -> None:
    assert figures([Point(10, 100, 1.0), Point(20, 300, 2.0)], 60)["score"] == 2.0


def test_a_run_that_learnt_nothing_has_no_score() -> None:
    assert figures([], 60) == {"steps": [0.0] * 6}
