"""Who has children, what is saved, and who gets which genome; whoever plays, and however often."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from gpusched.channel import Actor, Answer, Learner
from workloads.common.weights import Weights
from workloads.snake.genetic.algorithm import Evaluation, Genetic
from workloads.snake.genetic.breeding import Breeding
from workloads.snake.networks import build
from workloads.snake.settings import Settings

SIZE, GAMES = 32, 3


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return build("small")


@pytest.fixture
def genetic(model: keras.Model) -> Genetic:
    return fresh(model)


def fresh(model: keras.Model, seed: int = 1) -> Genetic:
    return Genetic(model, Settings(algo="genetic", network="small", population=SIZE, trials=GAMES, seed=seed))


def scores_of(genetic: Genetic, place: int) -> NDArray[np.int64]:
    """What a genome scores: whatever it is, a function of its chain and of the games, as in a real run."""
    chain = genetic.chain(place)
    return np.array([int(chain.sum() // 7 + genetic.generation * game) % 11 for game in range(GAMES)], np.int64)


def evaluation(genetic: Genetic, place: int) -> Evaluation:
    return Evaluation(genetic.generation, place, scores_of(genetic, place), 10)


def play(genetic: Genetic, places: Iterable[int]) -> list[bool]:
    return [genetic.learn(evaluation(genetic, place), 0.0) for place in places]


def story(genetic: Genetic) -> tuple[int, list[tuple[int, ...]]]:
    return genetic.generation, [tuple(genetic.chain(place).tolist()) for place in range(SIZE)]


def test_a_generation_ends_with_its_last_genome_and_not_before(genetic: Genetic) -> None:
    assert play(genetic, range(SIZE)) == [False] * (SIZE - 1) + [True]
    assert genetic.generation == 1
    assert len(genetic.not_played) == SIZE


def test_the_best_go_on_and_children_are_one_mutation_of_the_best(genetic: Genetic) -> None:
    fruits = {tuple(genetic.chain(place).tolist()): scores_of(genetic, place).sum() for place in range(SIZE)}
    ranking = sorted(fruits.values(), reverse=True)
    play(genetic, range(SIZE))
    _, chains = story(genetic)
    assert [fruits[chain] for chain in chains[:2]] == ranking[:2]
    assert all(fruits[chain[:-1]] >= ranking[SIZE // 8 - 1] for chain in chains[2:])
    assert len(set(chains)) == SIZE


def test_one_that_goes_on_is_judged_by_all_its_games(genetic: Genetic) -> None:
    best = 5
    for place in range(SIZE):
        genetic.learn(replace_scores(evaluation(genetic, place), 10 if place == best else 0), 0.0)
    chain = genetic.chain(0)
    for place in range(SIZE):  # unlucky now, and still better than one that is lucky once: 10 and 4 against 6
        genetic.learn(replace_scores(evaluation(genetic, place), {0: 4, 9: 6}.get(place, 0)), 0.0)
    assert genetic.chain(0).tolist() == chain.tolist()


def replace_scores(one: Evaluation, score: int) -> Evaluation:
    return one._replace(scores=np.full(GAMES, score))


def test_the_order_in_which_scores_come_does_not_matter(model: keras.Model) -> None:
    one, other = fresh(model), fresh(model)
    for _ in range(3):
        play(one, range(SIZE))
        play(other, reversed(range(SIZE)))
    assert story(one) == story(other)
    assert story(one) != story(fresh(model, seed=2))


def test_late_and_second_scores_are_not_wanted_and_impossible_ones_are_an_error(genetic: Genetic) -> None:
    first = evaluation(genetic, 4)
    assert genetic.awaits(first)
    genetic.learn(first, 0.0)
    assert not genetic.awaits(first)
    assert (genetic.waits_for(4), genetic.waits_for(5)) == (False, True)
    play(genetic, genetic.not_played)
    assert genetic.waits_for(4)
    assert not genetic.awaits(evaluation(genetic, 4)._replace(generation=0))
    wrong = evaluation(genetic, 4)
    for bad in (
        wrong._replace(place=SIZE),
        wrong._replace(place=-1),
        wrong._replace(scores=np.zeros(GAMES + 1, np.int64)),
        wrong._replace(scores=np.full(GAMES, -1)),
        wrong._replace(steps=-1),
    ):
        with pytest.raises(ValueError, match="cannot have scored"):
            genetic.awaits(bad)


def test_what_was_saved_amid_a_generation_goes_on_to_the_same_genomes(model: keras.Model) -> None:
    former = fresh(model)
    for _ in range(2):
        play(former, range(SIZE))
    play(former, range(0, SIZE, 3))
    played, saved = len(former.not_played), {name: array.copy() for name, array in former.state().items()}
    later = fresh(model)
    assert later.restore(saved).size == (SIZE - played) * GAMES
    assert later.not_played == former.not_played
    for one in (former, later):
        play(one, one.not_played)
        play(one, range(SIZE))
    assert story(later) == story(former)


def test_the_network_is_the_best_genome(genetic: Genetic, model: keras.Model) -> None:
    play(genetic, range(SIZE))
    shown = Weights(model).get()
    for name, array in genetic._genomes.weights(genetic.chain(0)).items():
        np.testing.assert_array_equal(shown[name], array)


class Players:
    """Asks by hand, as actors do."""

    def __init__(self, learner: Learner, genetic: Genetic) -> None:
        self.source = Breeding(learner, genetic)
        self._genetic = genetic
        self.wanted = 0

    def serve(self, answer: Answer | None) -> tuple[int, int]:
        """Let the learner work until this ask is answered; return the generation and the place that it says."""
        assert answer is not None
        while not answer.over:
            played = self.source.next(0.05)
            if played is not None:
                self._genetic.learn(played.experience, 0.0)
                self.wanted += 1
                self.source.learnt()
        told = answer.wait()
        assert told is not None
        assert told["chain"].tolist() == self._genetic.chain(int(told["where"][1])).tolist()
        return int(told["where"][0]), int(told["where"][1])


def told(one: Evaluation) -> dict[str, int]:
    return {"generation": one.generation, "place": one.place, "steps": one.steps}


def test_a_genome_that_an_actor_took_into_its_grave_is_given_to_another_and_no_scores_count_twice(
    genetic: Genetic, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("c")
    folder.chmod(0o700)
    endpoint = f"ipc://{folder}/s"
    with Learner(endpoint) as learner:
        players = Players(learner, genetic)
        with Actor(endpoint, name="actor.0") as dies:
            assert players.serve(dies.ask({})) == (0, 0)
        with Actor(endpoint, name="actor.1") as lives:
            where = players.serve(lives.ask({}))
            given = [where[1]]
            for _ in range(SIZE - 1):
                mine = evaluation(genetic, where[1])
                where = players.serve(lives.ask({"scores": mine.scores}, meta=told(mine)))
                given.append(where[1])
            assert given == [*range(1, SIZE), 0]
            mine = evaluation(genetic, 7)
            assert players.serve(lives.ask({"scores": mine.scores}, meta=told(mine))) == (0, 0), "a second time"
            mine = evaluation(genetic, 0)
            assert players.serve(lives.ask({"scores": mine.scores}, meta=told(mine))) == (1, 0), "the last one"
    assert players.wanted == SIZE


def test_an_ask_that_is_none_is_answered_with_nothing_and_said(
    genetic: Genetic, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("c")
    folder.chmod(0o700)
    endpoint = f"ipc://{folder}/s"
    mine = evaluation(genetic, 1)
    wrong: list[tuple[dict[str, NDArray[Any]], dict[str, int]]] = [
        ({"scores": mine.scores}, {"place": 1}),
        ({"scores": mine.scores.astype(np.float32)}, told(mine)),
        ({"scores": mine.scores}, told(mine) | {"place": SIZE}),
    ]
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as actor:
        source = Breeding(learner, genetic)
        for arrays, meta in wrong:
            answer = actor.ask(arrays, meta=meta)
            assert answer is not None
            while not answer.over:
                assert source.next(0.05) is None
            assert answer.wait() == {}
    assert capsys.readouterr().err.count("an ask of actor.0 is left out") == len(wrong)
