"""Which part of a run is over, by its limits."""

from workloads.common.part import part_done


def test_the_nearest_limit_counts_and_none_of_zero() -> None:
    assert part_done((0, 7), (100, 25), (60, 30)) == 0.5
    assert part_done((100, 25), (0, 7)) == 0.25
    assert part_done((100, 250)) == 1
    assert part_done((0, 7)) is None
