"""Both schemes beside one process that takes the same steps."""

import numpy as np
import pytest

from gpusched.channel import Batch
from tests.workloads.averaging.reference import weights_after
from workloads.averaging.settings import Scheme, Settings, Task
from workloads.averaging.share import Share
from workloads.averaging.training import Training
from workloads.common.rounds import Contribution, Round, packed

ACTORS = 3
TASKS = [
    "line",
    "digits",
]


def run(settings: Settings) -> Training:
    """A run without processes: the real parts of learner and actors, one after the other."""
    learner, actor = Training(settings), Training(settings)
    samples = len(learner.data.inputs)
    for number in range(1, settings.rounds + 1):
        now = Round(number, learner.weights.size)
        for rank in range(ACTORS):
            actor.weights.set_flat(learner.weights.get_flat())
            share = Share(samples, rank, ACTORS, settings.batch, settings.seed)
            now.add(sent(actor.contribution(share, number), number, rank))
        learner.take(now.average())
    return learner


def sent(part: Contribution, number: int, rank: int) -> Batch:
    arrays, meta = packed(part, number, rank, ACTORS)
    return Batch(arrays=arrays, actor=f"actor.{rank}", version=number, meta=dict(meta), seq=1)


@pytest.mark.parametrize("scheme", ["weights", "gradients"])
@pytest.mark.parametrize("task", TASKS)
def test_a_scheme_ends_where_one_process_ends_that_takes_the_same_steps(task: Task, scheme: Scheme) -> None:
    settings = Settings(task=task, scheme=scheme, rounds=25, batch=30, local_steps=3, learning_rate=0.2, seed=4)
    np.testing.assert_allclose(run(settings).weights.get_flat(), weights_after(settings, ACTORS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("scheme", ["weights", "gradients"])
def test_the_line_is_found_to_a_hundredth(scheme: Scheme) -> None:
    training = run(Settings(scheme=scheme, rounds=120 if scheme == "gradients" else 40))
    slope, intercept = training.weights.get_flat()
    assert (slope, intercept) == (pytest.approx(0.1, abs=0.01), pytest.approx(0.3, abs=0.01))
    assert training.score > 0.99


@pytest.mark.parametrize("scheme", ["weights", "gradients"])
def test_nine_of_ten_digits_that_were_never_seen_are_known(scheme: Scheme) -> None:
    training = Training(Settings(task="digits"))
    assert training.score < 0.3
    assert run(Settings(task="digits", scheme=scheme, rounds=100 if scheme == "gradients" else 25)).score > 0.9


def test_with_one_local_step_averaged_weights_are_the_averaged_gradient() -> None:
    ends = [
        run(Settings(scheme=scheme, local_steps=1, rounds=20)).weights.get_flat() for scheme in ("weights", "gradients")
    ]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-5, rtol=0)


def test_an_actor_that_begins_anew_contributes_the_same_numbers() -> None:
    settings = Settings(scheme="weights")
    former, later = Training(settings), Training(settings)
    share = Share(1000, 1, ACTORS, settings.batch, settings.seed)
    start = former.weights.get_flat()
    for number in (1, 2, 3):
        former.contribution(share, number)
    former.weights.set_flat(start)
    later.weights.set_flat(start)
    one, other = former.contribution(share, 7), later.contribution(share, 7)
    np.testing.assert_array_equal(one.vector, other.vector)
    assert (one.samples, one.loss) == (other.samples, other.loss)


def test_what_went_before_does_not_trace_a_network_anew() -> None:
    training = Training(Settings())
    share = Share(1000, 0, 1, 64, 0)
    for number in range(1, 9):
        training.weights.set_flat(training.weights.get_flat())
        training.contribution(share, number)
    assert training._descend.experimental_get_tracing_count() <= 2, "one for whole batches, one for all others"


def test_shares_are_apart_and_all_there_is_and_a_pass_takes_each_once() -> None:
    shares = [Share(100, rank, ACTORS, 8, seed=1) for rank in range(ACTORS)]
    passes = [np.concatenate([share.at(step) for step in range(5)]) for share in shares]
    assert sorted(np.concatenate(passes)) == list(range(100))
    assert [len(share.at(4)) for share in shares] == [2, 1, 1], "the last batch of a pass may be short"


def test_the_order_of_a_share_depends_on_seed_rank_and_pass() -> None:
    orders = [tuple(Share(100, 0, 1, 100, seed).at(step).tolist()) for seed, step in [(1, 0), (1, 0), (1, 1), (2, 0)]]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3


def test_more_actors_than_samples_are_too_many() -> None:
    with pytest.raises(ValueError, match="actor 3 of 8 has no share of 3 samples"):
        Share(3, 3, 8, 1, 0)
