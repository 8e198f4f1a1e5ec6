"""An actor asks, the learner answers: each question its own answer, and no wait that nothing can end."""

import gc
from collections.abc import Callable

import numpy as np
import pytest

from gpusched.channel import Actor, ChannelError, Learner, LearnerGone, Limits
from gpusched.errors import UsageError
from tests.patience import PATIENCE_S

WaitUntil = Callable[..., None]


def one(value: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    return {"x": np.full(3, value, np.uint8)}


def test_each_question_gets_its_own_answer_in_whatever_order_they_come(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as actor:
        questions = [actor.ask(one(value), meta={"n": value}) for value in (1, 2)]
        batches = [learner.get(timeout=PATIENCE_S), learner.get(timeout=PATIENCE_S)]
        for batch in reversed(batches):
            assert batch is not None
            assert batch.asks
            assert (batch.actor, batch.meta) == ("actor.0", {"n": batch.arrays["x"][0]})
            learner.answer(batch, {"y": batch.arrays["x"] + 10})
        for value, question in zip((1, 2), questions, strict=True):
            assert question is not None
            found = question.wait(timeout=PATIENCE_S)
            assert found is not None
            assert found["y"].tolist() == [value + 10] * 3
            assert found["y"].flags.writeable
            assert question.over
            assert question.wait() is found, "as often as one likes"


def test_questions_and_batches_count_against_the_same_credits(endpoint: str) -> None:
    with Learner(endpoint, limits=Limits(in_flight=2)) as learner, Actor(endpoint) as actor:
        learner.publish({})
        actor.weights()
        assert actor.ask(one(1), timeout=PATIENCE_S) is not None
        assert actor.send(one(2), timeout=PATIENCE_S)
        assert actor.ask(one(3), timeout=0.1) is None
        first, second = learner.get(timeout=PATIENCE_S), learner.get(timeout=PATIENCE_S)
        assert first is not None
        assert second is not None
        assert (first.asks, second.asks) == (True, False)
        assert actor.ask(one(3), timeout=PATIENCE_S) is not None, (
            "a batch that was taken is out of flight, answered or not"
        )


def test_only_a_batch_that_asks_is_answered_and_only_once(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        assert actor.send(one(1))
        sent = learner.get(timeout=PATIENCE_S)
        assert sent is not None
        with pytest.raises(UsageError, match="does not ask"):
            learner.answer(sent, {})
        question = actor.ask(one(1))
        asked = learner.get(timeout=PATIENCE_S)
        assert question is not None
        assert asked is not None
        learner.answer(asked, one(5))
        learner.answer(asked, one(6))
        found = question.wait(timeout=PATIENCE_S)
        assert found is not None
        assert found["x"][0] == 5
        assert actor._loop.dropped == {}


def test_waiting_for_an_answer_can_end_and_go_on(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        question = actor.ask(one(1))
        assert question is not None
        assert question.wait(timeout=0.05) is None
        assert not question.over
        batch = learner.get(timeout=PATIENCE_S)
        assert batch is not None
        learner.answer(batch, one(2))
        assert question.wait(timeout=PATIENCE_S) is not None


def test_a_question_to_a_learner_that_is_gone_ends_when_the_next_is_there(endpoint: str) -> None:
    with Actor(endpoint) as actor:
        first = Learner(endpoint)
        question = actor.ask(one(1))
        assert first.get(timeout=PATIENCE_S) is not None
        first.close(over=False)
        assert question is not None
        assert question.wait(timeout=0.05) is None
        with Learner(endpoint) as second:
            assert question.wait(timeout=PATIENCE_S) is None
            assert question.over
            again = actor.ask(one(2), timeout=PATIENCE_S)
            assert again is not None
            batch = second.get(timeout=PATIENCE_S)
            assert batch is not None
            second.answer(batch, one(3))
            assert again.wait(timeout=PATIENCE_S) is not None


def test_goodbye_and_close_end_the_wait_for_an_answer(endpoint: str) -> None:
    actor = Actor(endpoint)
    with Learner(endpoint) as learner:
        question = actor.ask(one(1))
        assert learner.get(timeout=PATIENCE_S) is not None
    assert question is not None
    with pytest.raises(LearnerGone):
        question.wait(timeout=PATIENCE_S)
    actor.close()
    other = Actor(endpoint)
    waiting = other.ask(one(1))
    assert waiting is not None
    other.close()
    with pytest.raises(ChannelError, match="closed"):
        waiting.wait()


def test_an_answer_to_an_actor_that_is_gone_disturbs_nobody(endpoint: str) -> None:
    with Learner(endpoint) as learner:
        with Actor(endpoint, name="actor.0") as actor:
            actor.ask(one(1))
            batch = learner.get(timeout=PATIENCE_S)
            assert batch is not None
        with Actor(endpoint, name="actor.0") as successor:
            question = successor.ask(one(2))
            later = learner.get(timeout=PATIENCE_S)
            assert later is not None
            learner.answer(batch, one(7))
            learner.answer(later, one(8))
            assert question is not None
            found = question.wait(timeout=PATIENCE_S)
            assert found is not None
            assert found["x"][0] == 8


def test_questions_that_nobody_waits_for_any_more_cost_nothing(endpoint: str, wait_until: WaitUntil) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        for value in range(50):
            actor.ask(one(value), timeout=PATIENCE_S)
            batch = learner.get(timeout=PATIENCE_S)
            assert batch is not None
            learner.answer(batch, one(value))
        gc.collect()
        wait_until(lambda: not actor._loop.questions)
        assert actor._loop.dropped == {}


def test_a_lost_connection_ends_the_questions_whose_answers_may_be_lost(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as actor:
        question = actor.ask(one(1))
        assert learner.get(timeout=PATIENCE_S) is not None
        with learner._loop._lock:
            learner._loop._registry.lost(learner._loop._registry.connections()[0])
        assert question is not None
        assert question.wait(timeout=PATIENCE_S) is None
        assert question.over
