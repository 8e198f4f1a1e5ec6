"""Deep Q-learning: the goals that it learns, the target network, and what an actor has of its own."""

from pathlib import Path

import numpy as np
import pytest

from gpusched.channel import Batch
from workloads.cartpole.averaged import AveragedActor
from workloads.cartpole.memory import Transitions
from workloads.cartpole.network import Policy
from workloads.cartpole.settings import Settings
from workloads.cartpole.training import Training
from workloads.common.checkpoint import UnusableWeights
from workloads.common.rounds import Round, packed
from workloads.common.weights import Vector

TINY = Settings(scheme="average", games=4, play=4, plays=2, updates=3, batch=8, memory=50, target_every=2, seed=3)
PLACE = np.array([0.1, 0.2, -0.1, 0.3], np.float32)

pytestmark = pytest.mark.timeout(1200)  # one of them traces eleven networks, perhaps on a busy machine


def always(*, fallen: bool, updates: int = 50) -> Transitions:
    """From one place to the same, for a reward of -1, whatever the push."""
    shape = (updates, 16)
    places = np.broadcast_to(PLACE, (*shape, 4)).copy()
    actions = np.arange(16, dtype=np.uint8)[None].repeat(updates, axis=0) % 2
    return Transitions(places, actions, np.full(shape, -1, np.float32), places, np.full(shape, fallen))


def worths(training: Training) -> Vector:
    found: Vector = Policy(training.weights.get()).worths(PLACE[None])[0]
    return found


@pytest.mark.parametrize(("fallen", "worth"), [(True, -1), (False, -2)])
def test_what_follows_counts_by_its_discount_unless_it_has_fallen(fallen: bool, worth: float) -> None:
    training = Training(Settings(discount=0.5, learning_rate=0.01, target_every=20))
    for _ in range(6):
        training.learn(always(fallen=fallen))
    np.testing.assert_allclose(worths(training), worth, atol=0.05)


def test_the_target_network_stays_as_it_is_for_so_many_steps() -> None:
    training = Training(Settings(target_every=200))

    def target() -> Vector:
        return np.concatenate([array.ravel() for name, array in training.state().items() if "target" in name])

    start = target()
    training.learn(always(fallen=True, updates=199))
    np.testing.assert_array_equal(target(), start)
    training.learn(always(fallen=True, updates=1))
    at_200 = target()
    np.testing.assert_array_equal(at_200, training.weights.get_flat())
    training.learn(always(fallen=True, updates=199))
    np.testing.assert_array_equal(target(), at_200)


def test_the_network_says_the_same_without_tensorflow() -> None:
    training = Training(Settings(seed=1))
    places = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    found = Policy(training.weights.get()).worths(places)
    np.testing.assert_allclose(found, training._model.predict_on_batch(places), atol=1e-5)


def test_one_whose_state_is_taken_over_learns_on_alike() -> None:
    one, other = Training(Settings(seed=1)), Training(Settings(seed=2))
    one.learn(always(fallen=False, updates=7))
    other.set_state(one.state())
    for training in (one, other):
        training.learn(always(fallen=False, updates=7))
    np.testing.assert_array_equal(one.weights.get_flat(), other.weights.get_flat())


def test_another_number_of_batches_does_not_trace_the_network_anew() -> None:
    training = Training(Settings())
    for updates in (5, 5, 6, 7, 8):
        training.learn(always(fallen=True, updates=updates))
    assert training._learn.experimental_get_tracing_count() <= 2


def test_an_actor_that_is_killed_at_any_moment_contributes_the_same_numbers(tmp_path: Path) -> None:
    """It is started anew before each round, and once more after it: its contribution may not have come."""
    settings = TINY
    alive = AveragedActor(settings, 1, 2, tmp_path / "alive.npz")
    weights = Training(settings).weights.get_flat()
    for number in range(1, 6):
        whole = alive.contribution(number, weights)
        first = AveragedActor(settings, 1, 2, tmp_path / "killed.npz").contribution(number, weights)
        again = AveragedActor(settings, 1, 2, tmp_path / "killed.npz").contribution(number, weights)
        for part in (first, again):
            np.testing.assert_array_equal(part.vector, whole.vector)
            assert (part.samples, part.loss) == (whole.samples, whole.loss)
        assert (whole.loss > 0) == (number > 1), "after the first round its memory is full"
        weights = (weights + whole.vector) / np.float32(2)


def test_a_full_disk_and_a_round_that_was_lost_are_told_and_stop_no_actor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, weights = AveragedActor(TINY, 0, 1, tmp_path / "actor.0.npz"), Training(TINY).weights.get_flat()
    (tmp_path / ".actor.0.npz").mkdir()  # in the way of what is to be written
    own.contribution(1, weights)
    assert "not written: " in capsys.readouterr().err
    assert not np.array_equal(own.contribution(3, weights).vector, weights)
    assert "round 3 comes after round 1" in capsys.readouterr().err


def test_two_actors_of_one_run_do_not_play_alike(tmp_path: Path) -> None:
    weights = Training(TINY).weights.get_flat()
    one, other = (AveragedActor(TINY, rank, 2, tmp_path / f"{rank}.npz") for rank in range(2))
    for number in (1, 2):
        vectors = [each.contribution(number, weights).vector for each in (one, other)]
    assert not np.array_equal(vectors[0], vectors[1])


def test_an_actor_does_not_go_on_from_what_is_no_state_of_its_own(tmp_path: Path) -> None:
    AveragedActor(TINY, 0, 1, tmp_path / "actor.0.npz").contribution(1, Training(TINY).weights.get_flat())
    bigger = Settings(scheme="average", memory=51)
    with pytest.raises(UnusableWeights, match=r"actor\.0\.npz"):
        AveragedActor(bigger, 0, 1, tmp_path / "actor.0.npz")
    (tmp_path / "actor.0.npz").write_text("state")
    with pytest.raises(UnusableWeights, match="holds no weights that this workload has saved"):
        AveragedActor(TINY, 0, 1, tmp_path / "actor.0.npz")


def test_a_round_in_which_an_actor_only_began_a_game_anew_goes_on(tmp_path: Path) -> None:
    settings = Settings(scheme="average", games=1, play=1, plays=1)
    own, weights = AveragedActor(settings, 0, 1, tmp_path / "actor.0.npz"), Training(settings).weights.get_flat()
    samples: list[int] = []
    for number in range(1, 101):
        present = Round(number, weights.size)
        arrays, meta = packed(own.contribution(number, weights), number, 0, 1)
        present.add(Batch(arrays=arrays, actor="actor.0", version=number, meta=dict(meta), seq=number))
        assert present.whole
        np.testing.assert_array_equal(present.average(), weights)
        samples.append(present.samples)
    assert set(samples) == {0, 1}
