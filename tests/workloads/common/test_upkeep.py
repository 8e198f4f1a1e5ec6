"""What is done beside training: when it is due, and never at the cost of the training."""

from itertools import pairwise

import pytest

from workloads.common.upkeep import Upkeep


def test_both_are_done_at_first_and_then_each_when_it_is_due() -> None:
    done: dict[str, list[float]] = {"report": [], "save": []}
    clock = 100.0
    kept = Upkeep(lambda: done["report"].append(clock), lambda: done["save"].append(clock), lambda: clock)
    for tick in range(121):
        clock = 100.0 + tick / 4
        kept.keep()
    assert done["report"][0] == done["save"][0] == 100.0
    assert {later - sooner for sooner, later in pairwise(done["report"])} == {2.0}
    assert {later - sooner for sooner, later in pairwise(done["save"])} == {10.0}


def test_who_saves_sooner_saves_the_next_time_ten_seconds_later() -> None:
    saved: list[float] = []
    clock = 100.0
    kept = Upkeep(lambda: None, lambda: saved.append(clock), lambda: clock)
    kept.keep()
    clock = 107.0
    kept.save()
    for tick in (110.0, 116.9, 117.0):
        clock = tick
        kept.keep()
    assert saved == [100.0, 107.0, 117.0]


def test_what_cannot_be_written_is_told_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    kept = Upkeep(full, full, lambda: 100.0)
    for one in (kept.keep, kept.save):
        one()
        assert "not written: [Errno 28] No space left on device" in capsys.readouterr().err
