"""What the replay memory holds."""

import numpy as np
import pytest

from workloads.cartpole.memory import Memory, Transitions, transitions_from


def transitions(*numbers: int) -> Transitions:
    """Transitions that can be told apart by their rewards."""
    count = len(numbers)
    rewards = np.array(numbers, np.float32)
    observations = np.repeat(rewards[:, None], 4, axis=1)
    return Transitions(observations, np.zeros(count, np.uint8), rewards, observations + 1, np.zeros(count, np.bool_))


def held(memory: Memory) -> set[int]:
    return {int(reward) for reward in memory.sample((1000,), np.random.default_rng(0)).rewards}


def test_the_oldest_make_room_also_when_more_come_than_it_holds() -> None:
    memory = Memory(3)
    memory.add(transitions(1, 2))
    assert held(memory) == {1, 2}
    memory.add(transitions(3, 4))
    assert held(memory) == {2, 3, 4}
    memory.add(transitions(5, 6, 7, 8, 9))
    assert held(memory) == {7, 8, 9}
    memory.add(transitions(10))
    assert held(memory) == {8, 9, 10}


def test_what_is_drawn_belongs_together() -> None:
    memory = Memory(50)
    memory.add(transitions(*range(40)))
    drawn = memory.sample((5, 7), np.random.default_rng(1))
    assert (drawn.observations.shape, drawn.rewards.shape) == ((5, 7, 4), (5, 7))
    np.testing.assert_array_equal(drawn.observations[..., 0], drawn.rewards)
    np.testing.assert_array_equal(drawn.following[..., 3], drawn.rewards + 1)


def test_a_small_memory_has_enough_when_it_is_full() -> None:
    memory = Memory(2)
    memory.add(transitions(1))
    assert not memory.enough
    memory.add(transitions(2))
    assert memory.enough


def test_a_memory_that_is_taken_over_goes_on_alike() -> None:
    one, other = Memory(3), Memory(3)
    one.add(transitions(1, 2, 3, 4))
    other.set_state(one.state())
    for memory in (one, other):
        memory.add(transitions(5))
    assert held(one) == held(other) == {3, 4, 5}


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        ("observations", np.zeros((2, 5), np.float32), "observations is float32 \\(2, 5\\), not float32 \\(2, 4\\)"),
        ("rewards", np.zeros(2), "rewards is float64"),
        ("fallen", np.zeros(3, np.bool_), "fallen is bool \\(3,\\), not bool \\(2,\\)"),
        ("actions", np.zeros((2, 1), np.uint8), "actions is uint8 \\(2, 1\\)"),
    ],
)
def test_what_are_no_transitions_is_said(name: str, array: np.ndarray, told: str) -> None:
    arrays = transitions(1, 2).arrays()
    with pytest.raises(ValueError, match=told):
        transitions_from({**arrays, name: array})
    del arrays[name]
    with pytest.raises(ValueError, match=f"{name} is missing|not \\w+ \\(0,"):
        transitions_from(arrays)
