"""What a synchronous round promises: the average of all actors' contributions, whoever comes first, late or twice."""

import numpy as np
import pytest

from gpusched.channel import Batch
from workloads.common.rounds import Contribution, Round, packed
from workloads.common.weights import Vector


def sent(part: Contribution, number: int, rank: int, actors: int) -> Batch:
    arrays, meta = packed(part, number, rank, actors)
    return Batch(arrays=arrays, actor=f"actor.{rank}", version=number, meta=dict(meta), seq=1)


def part(*vector: float, samples: int = 1, loss: float = 0.0) -> Contribution:
    return Contribution(np.array(vector, np.float32), samples, loss)


def average_of(*batches: Batch) -> Vector | None:
    now = Round(5, 2)
    for batch in batches:
        now.add(batch)
    return now.average() if now.whole else None


def test_a_round_weights_each_contribution_by_its_samples_in_whatever_order_they_come() -> None:
    one, other = sent(part(0, 1, samples=30), 5, 0, 2), sent(part(1, 5, samples=10), 5, 1, 2)
    for batches in [(one, other), (other, one)]:
        assert np.array_equal(average_of(*batches), [0.25, 2])  # type: ignore[arg-type]


def test_a_round_goes_on_with_actors_that_have_no_new_samples() -> None:
    none, other = sent(part(0, 4, samples=0, loss=4), 5, 0, 2), sent(part(4, 8, samples=3), 5, 1, 2)
    assert np.array_equal(average_of(none, other), [3, 7])  # type: ignore[arg-type]
    again = sent(part(2, 6, samples=0, loss=2), 5, 1, 2)
    assert np.array_equal(average_of(none, again), [1, 5])  # type: ignore[arg-type]
    now = Round(5, 2)
    for batch in (none, again):
        now.add(batch)
    assert now.loss == 3


def test_a_contribution_for_another_round_and_a_second_one_are_left_out() -> None:
    one, other = sent(part(0, 1), 5, 0, 2), sent(part(2, 3), 5, 1, 2)
    late, early, again = sent(part(9, 9), 4, 1, 2), sent(part(9, 9), 6, 1, 2), sent(part(9, 9), 5, 0, 2)
    assert average_of(one, again, late, early) is None
    assert np.array_equal(average_of(late, one, again, early, other), [1, 2])  # type: ignore[arg-type]


def test_a_round_tells_whom_it_waits_for() -> None:
    now = Round(1, 2)
    assert (now.missing, now.whole) == ([], False)
    now.add(sent(part(0, 1), 1, 1, 3))
    assert (now.missing, now.whole) == ([0, 2], False)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        (sent(part(1, 2, 3), 1, 1, 2), "is no contribution: float32 \\(3,\\)"),
        (sent(part(1, 2, samples=-1), 1, 1, 2), "of -1 samples"),
        (sent(part(1, 2), 1, 1, 3), "says that it is actor 1 of 3, not of 2"),
        (sent(part(1, 2), 1, 2, 2), "says that it is actor 2 of 2"),
        (Batch(arrays={}, actor="actor.1", version=1, meta={}, seq=1), "it has no 'round'"),
    ],
)
def test_what_would_keep_a_round_waiting_for_ever_is_an_error(batch: Batch, told: str) -> None:
    now = Round(1, 2)
    now.add(sent(part(1, 2), 1, 0, 2))
    with pytest.raises(ValueError, match=told):
        now.add(batch)
