"""The environments that the bench measures beside ours play the same game: else their speed would say nothing."""

from collections.abc import Callable
from functools import partial

import pytest

from bench.peers.snake_numba import NumbaSnake
from bench.peers.snake_numpy import NumpySnake
from tests.workloads.snake.beside import Games, after_the_tail, at_random, compare, over_the_whole_board, to_the_fruit

in_python = partial(NumbaSnake, compiled=False)


@pytest.mark.parametrize("peer", [NumpySnake, in_python])
def test_a_peer_plays_by_the_rules_of_the_single_game(peer: Callable[[int, int], Games]) -> None:
    seen = compare(peer(60, 1), [at_random, to_the_fruit, after_the_tail] * 20, steps=200, seed=1)
    assert min(seen["dead"], seen["starved"], seen["follows"], seen["fruit"]) > 10


@pytest.mark.parametrize("peer", [NumpySnake, in_python])
def test_a_peer_ends_a_game_that_fills_the_board(peer: Callable[[int, int], Games]) -> None:
    assert compare(peer(3, 2), [over_the_whole_board] * 3, steps=2900, seed=2)["full"] > 0


def test_what_numba_compiles_plays_by_the_rules_of_the_single_game() -> None:
    pytest.importorskip("numba")
    players = [at_random, to_the_fruit, after_the_tail, over_the_whole_board] * 5
    assert compare(NumbaSnake(20), players, steps=2800, seed=3)["full"] > 0
