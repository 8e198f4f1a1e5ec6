"""What the learner tells of a round that does not end, and what it saves and goes on from."""

from pathlib import Path

import numpy as np
import pytest

from gpusched.channel import Batch
from tests.workloads.rounds import after
from workloads.averaging.learner import Averaging
from workloads.averaging.record import Counts
from workloads.averaging.settings import Settings
from workloads.common import rounds
from workloads.common.checkpoint import UnusableWeights, write_checkpoint
from workloads.common.record import read_rows
from workloads.common.rounds import Contribution, Round, packed


def contribution(number: int, rank: int, slope: float = 1.0) -> Batch:
    part = Contribution(np.array([slope, 0], np.float32), 10, 0.5)
    arrays, meta = packed(part, number, rank, 2)
    return Batch(arrays=arrays, actor=f"actor.{rank}", version=number, meta=dict(meta), seq=1)


def test_a_round_that_does_not_end_is_reported_with_whom_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    averaging, notes = Averaging(Settings(), tmp_path), list[str | None]()
    monkeypatch.setattr(averaging, "keep", notes.append)
    monkeypatch.setattr(rounds, "_PATIENCE_S", 0.0)
    after(averaging, contribution(1, 0))
    after(averaging)
    after(averaging, contribution(1, 0), contribution(1, 1))
    monkeypatch.setattr(rounds, "_PATIENCE_S", 1e9)
    after(averaging)
    first = "waits for the first actor"
    assert notes == [
        *["round 1 waits for actor.1"] * 2,
        f"round 1 {first}",
        *("round 1 waits for actor.1", None),  # then it is whole, and the next one begins
        *(f"round 2 {first}", None),
    ]


def test_a_round_begins_when_the_last_actor_has_contributed_from_the_average(tmp_path: Path) -> None:
    published = after(Averaging(Settings(), tmp_path), contribution(1, 1, slope=3), contribution(1, 0))
    assert [int(one["round"]) for one in published] == [1, 2]
    np.testing.assert_array_equal(published[1]["weights"], [2, 0])


def test_a_learner_goes_on_from_what_was_saved_and_drops_what_was_written_after_it(tmp_path: Path) -> None:
    former = Averaging(Settings(), tmp_path)
    for number in (1, 2, 3):
        done = Round(number, former.weights.size)
        for rank in (0, 1):
            done.add(contribution(number, rank, slope=number))
        former.take(done)
        if number == 2:
            former.save()
    former.record.write()
    former.record.close()
    assert [row[1] for row in read_rows(tmp_path / "curve.csv")] == [1, 2, 3]

    later = Averaging(Settings(), tmp_path)
    later.record.close()
    assert later.rounds == 2
    np.testing.assert_array_equal(later.weights.get_flat(), [2, 0])
    assert [row[1:4] for row in read_rows(tmp_path / "curve.csv")] == [(1, 20, 0.5), (2, 40, 0.5)]


def test_saved_weights_that_are_damaged_or_of_another_task_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.npz").write_text("weights")
    with pytest.raises(UnusableWeights, match="holds no weights that this workload has saved"):
        Averaging(Settings(), tmp_path)
    write_checkpoint(tmp_path / "weights.npz", {"logits/bias": np.zeros(10)}, Counts())
    with pytest.raises(UnusableWeights, match="not of the network 'line'"):
        Averaging(Settings(), tmp_path)
