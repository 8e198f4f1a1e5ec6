"""What the ways of carrying batches and weights are measured with: a wrong or torn one is not counted as carried."""

import numpy as np
import pytest

from bench.peers import layers, steps


@pytest.mark.parametrize("batch", [steps.as_lists(), steps.as_arrays(np.uint8)], ids=["lists", "arrays"])
def test_a_batch_that_came_twice_or_not_whole_is_noticed(batch: steps.Carried) -> None:
    steps.number(batch, 7)
    steps.check(batch, 7)
    with pytest.raises(ValueError, match="batch 8 is not what was sent"):
        steps.check(batch, 8)
    frames, actions, values = batch
    with pytest.raises(ValueError, match="batch 7"):
        steps.check((frames, actions, values[:-1]), 7)


def test_lists_and_arrays_carry_the_same_steps() -> None:
    listed, arrays = steps.as_lists(), steps.as_arrays(np.float64)
    frames = np.array([frame for [frame] in listed[0]])
    assert all((np.array(one) == other).all() for one, other in zip((frames, *listed[1:]), arrays, strict=True))


def test_the_weights_are_those_of_the_network_and_tell_their_version() -> None:
    weights = layers.made()
    assert sum(array.nbytes for array in weights) == 4 * 1_182_904
    layers.sealed(weights, 3)
    assert layers.version_of(weights) == 3


def test_weights_of_two_versions_are_noticed() -> None:
    weights = layers.made()
    layers.sealed(weights, 3)
    weights[4].flat[-1] = 4
    with pytest.raises(ValueError, match="torn"):
        layers.version_of(weights)
