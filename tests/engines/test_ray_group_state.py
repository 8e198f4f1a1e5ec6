"""Who is told what while a group goes on: no cluster, and no clock."""

from concurrent.futures import ThreadPoolExecutor

from gpusched.engines.base import Seen
from gpusched.engines.ray.group_state import KILL, STOP, RayGroupState
from gpusched.model.status import JobState
from tests.patience import PATIENCE_S

OVER = Seen(state=JobState.SUCCEEDED)


def test_with_the_end_all_parts_are_told_to_end_once_and_the_first_end_counts() -> None:
    group_state, said = RayGroupState(), list[tuple[int, bytes]]()
    group_state.begin_learner("tcp://a:1")
    with (
        group_state.part(0, "tcp://a:1", lambda line: said.append((0, line))),
        group_state.part(1, "tcp://a:1", lambda line: said.append((1, line))),
    ):
        assert group_state.runs
        group_state.end(OVER)
        group_state.end(Seen(state=JobState.CANCELLED))
    assert said == [(0, STOP), (1, STOP)]
    assert group_state.ended == OVER
    assert not group_state.runs


def test_a_learner_that_begins_anew_has_all_others_begin_anew() -> None:
    group_state, said = RayGroupState(), list[tuple[int, bytes]]()
    group_state.begin_learner("tcp://a:1")
    with group_state.part(1, "tcp://a:1", lambda line: said.append((1, line))):
        group_state.begin_learner("tcp://b:1")
    assert said == [(1, STOP)]
    assert group_state.learner() == "tcp://b:1"


def test_a_part_that_begins_too_late_is_told_so_at_once() -> None:
    group_state, said = RayGroupState(), list[bytes]()
    group_state.begin_learner("tcp://b:1")
    with group_state.part(1, "tcp://a:1", said.append):
        assert said == [STOP]
    group_state.end(OVER)
    with group_state.part(1, "tcp://b:1", said.append):
        assert said == [STOP, STOP]


def test_parts_wait_for_a_learner_or_the_end() -> None:
    group_state = RayGroupState()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(group_state.learner) for _ in range(2)]
        group_state.begin_learner("tcp://a:1")
        assert [one.result(PATIENCE_S) for one in waiting] == ["tcp://a:1", "tcp://a:1"]
        group_state.lose_learner()
        last = pool.submit(group_state.learner)
        group_state.end(OVER)
        assert last.result(PATIENCE_S) is None
    group_state.pause(1e6)  # of a group that has ended: at once


def test_who_is_in_a_hurry_has_them_killed() -> None:
    group_state, said = RayGroupState(), list[bytes]()
    group_state.begin_learner("tcp://a:1")
    with group_state.part(0, "tcp://a:1", said.append):
        group_state.end(OVER)
        group_state.hurry()
    assert said == [STOP, KILL]


def test_the_group_fails_where_nobody_is_left_whom_the_learner_could_hear() -> None:
    group_state = RayGroupState(needed=[frozenset({1, 2})])
    group_state.begin_learner("tcp://a:1")
    group_state.give_up(1, 1, "actor.1 crashed with code 3")
    assert group_state.ended is None, "node 2 has actors"
    group_state.begin_learner("tcp://b:1")
    group_state.give_up(2, 2, "actor.2 crashed with code 3")
    assert group_state.ended is None, "with another learner node 1 has begun anew"
    group_state.give_up(1, 1, "actor.1 crashed with code 3")
    assert group_state.ended is None, "that was said of the learner before"
    group_state.give_up(1, 2, "actor.1 crashed with code 3")
    told = "no actor is left for the learner: actor.1 crashed with code 3"
    assert group_state.ended == Seen(state=JobState.FAILED, message=told)


def test_a_part_whose_learner_is_over_waits_for_another_one_or_the_end() -> None:
    group_state = RayGroupState()
    group_state.begin_learner("tcp://a:1")
    heard = group_state.learners
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(group_state.other_learner, heard)
        group_state.lose_learner()
        group_state.begin_learner("tcp://a:1")
        assert waiting.result(PATIENCE_S)
        last = pool.submit(group_state.other_learner, group_state.learners)
        group_state.end(OVER)
        assert not last.result(PATIENCE_S)
