"""A genome is the same wherever it is made, and its network plays turned boards alike."""

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from workloads.common.weights import Weights
from workloads.snake.genetic.algorithm import Evaluation, Genetic, genomes_of
from workloads.snake.genetic.spread import Numbers
from workloads.snake.networks import build, judge
from workloads.snake.rules import MOVES
from workloads.snake.settings import Settings
from workloads.snake.symmetry import SYMMETRIES, turned
from workloads.snake.vector import VectorSnake

ROOT = Path(__file__).parents[3]
CHAIN = [3, 2**61, 5, 8]

PRINT_DIGEST = """
import hashlib, sys
import numpy as np
from workloads.snake.genetic.genome import Genomes
from workloads.snake.genetic.spread import spread_over

network, shapes, chain = eval(sys.argv[1])
weights = Genomes(spread_over(network, shapes)).weights(np.array(chain))
print(hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest())
"""


def digest(weights: dict[str, NDArray[np.float32]]) -> str:
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return build("small")


@pytest.mark.parametrize("network", ["small", "original"])
def test_a_genome_is_the_same_in_every_process_and_with_any_number_of_threads(network: str) -> None:
    model = build(network)  # type: ignore[arg-type]
    here = digest(genomes_of(model, network).weights(np.array(CHAIN)))  # type: ignore[arg-type]
    shapes = {name: array.shape for name, array in Weights(model).get().items()}
    for threads in "123":
        env = {"PYTHONPATH": str(ROOT)} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        command = [sys.executable, "-c", PRINT_DIGEST, repr((network, shapes, CHAIN))]
        there = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        assert there.strip() == here


def test_a_child_is_the_same_whether_its_parent_is_known_or_not(model: keras.Model) -> None:
    chain = np.array([7, 8, 9, 10])
    knows = genomes_of(model, "small")
    for length in (2, 1, 3):
        knows.weights(chain[:length])
    for other in range(100):  # more than are kept
        knows.weights(np.array([other]))
    knows.weights(chain[:3])
    assert digest(knows.weights(chain)) == digest(genomes_of(model, "small").weights(chain))


def test_in_a_generation_a_child_costs_one_mutation_and_a_parent_no_more(
    model: keras.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    genetic = Genetic(model, Settings(algo="genetic", network="small", trials=1))
    actor, made = genomes_of(model, "small"), Counter[int]()
    mutated = actor._mutated

    def counted(numbers: Numbers, seed: int) -> Numbers:
        made[genetic.generation] += 1
        return mutated(numbers, seed)

    monkeypatch.setattr(actor, "_mutated", counted)
    size = len(genetic.not_played)
    for generation in range(8):
        for place in range(size):
            chain = genetic.chain(place)
            actor.weights(chain)
            genetic.learn(Evaluation(generation, place, chain[-1:] % 97, 1), 0.0)
    assert made[0] == 0
    assert 0 < max(made.values()) <= size + size // 8


def test_each_seed_of_a_chain_counts(model: keras.Model) -> None:
    genomes = genomes_of(model, "small")
    chains = [[1], [2], [1, 2], [1, 3], [1, 2, 3], [1, 3, 3]]
    assert len({digest(genomes.weights(np.array(chain))) for chain in chains}) == len(chains)


@pytest.mark.parametrize("chain", [np.empty(0, np.int64), np.array([-1]), np.array([[1]]), np.array([1.0])])
def test_what_is_no_chain_is_an_error(model: keras.Model, chain: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match="no chain of seeds"):
        genomes_of(model, "small").weights(chain)


@pytest.mark.parametrize("symmetry", range(SYMMETRIES))
def test_a_genome_plays_a_turned_board_as_it_plays_the_board(model: keras.Model, symmetry: int) -> None:
    Weights(model).set(genomes_of(model, "small").weights(np.array(CHAIN)))
    games, random = VectorSnake(32, 1), np.random.default_rng(2)
    for _ in range(12):
        games.step(random.integers(len(MOVES), size=32))
    logits = judge(model, games.frames).logits
    images, goes = turned(np.repeat(games.frames, len(MOVES), axis=0), np.tile(np.arange(len(MOVES)), 32), symmetry)
    turned_logits = judge(model, images[:: len(MOVES)]).logits
    np.testing.assert_allclose(turned_logits[:, goes[: len(MOVES)]], logits, rtol=1e-4, atol=1e-4)
    assert np.ptp(logits, axis=1).min() > 0.01, "it prefers some moves"


def test_the_weights_of_the_policy_differ_between_genomes_and_the_value_head_is_left_out(model: keras.Model) -> None:
    genomes = genomes_of(model, "small")
    one, other = genomes.weights(np.array([1, 5])), genomes.weights(np.array([2, 6]))
    named = Weights(model).get()
    assert {name: array.shape for name, array in one.items()} == {name: array.shape for name, array in named.items()}
    differs = {name for name in one if (one[name] != other[name]).mean() > 0.9}  # rounded, some are equal by chance
    assert differs == set(named) - {"policy/bias", "value/kernel", "value/bias"}
