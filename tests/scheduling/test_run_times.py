"""How long a job is expected to run: of its own kind first, given how long it has run, and never over its limit."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.model.job import Submission
from gpusched.model.workload import Role
from gpusched.scheduling import run_times
from gpusched.scheduling.run_times import PRIOR, RunTimes, RunTimesSeen, kinds_of, left_after, middle_of
from tests.planner.building import ask
from tests.scheduling.queueing import part, submission

KINDS = ("= train --lr 1", "program train", "name x")


def seen(**runs: list[float]) -> RunTimesSeen:
    found = RunTimesSeen()
    for kind, times in runs.items():
        for seconds in times:
            found.add((kind,), seconds)
    return found


def test_a_new_installation_expects_from_a_minute_to_half_a_day() -> None:
    assert RunTimesSeen().expected(KINDS) == PRIOR


def test_three_runs_of_one_kind_are_enough_whatever_else_ran() -> None:
    assert seen(fine=[10, 30, 20], coarse=[1000.0] * 40).expected(("fine", "coarse")) == (10, 20, 30)


def test_fewer_runs_count_three_times_each_beside_those_of_the_next_kind() -> None:
    assert seen(fine=[10], coarse=[1, 2, 3]).expected(("fine", "coarse")) == (1, 2, 3, 10, 10, 10)
    assert seen(fine=[10], other=[7]).expected(("fine",)) == tuple(sorted([10, 10, 10, 10, 7, *PRIOR]))
    assert seen(**{f"other-{number}": [7.0] for number in range(30)}).expected(("fine",)) == (7.0,) * 30


def test_a_sweep_of_short_members_makes_no_new_command_look_short() -> None:
    found = seen(**{f"long-{number}": [40_000.0] for number in range(50)})
    for number in range(1000):
        found.add((f"= echo {number}", "array run-7", "program echo"), 1.0)
    assert found.expected(("new",)) == (1.0,) * 10 + (40_000.0,) * 50


def test_a_long_sweep_of_different_members_leaves_known_what_other_commands_took() -> None:
    mine, found = kinds_of(command("python", "train.py")), RunTimesSeen()
    for _ in range(3):
        found.add(mine, 7.0)
    for number in range(6000):
        found.add(kinds_of(command("python", "sweep.py", str(number)), "run-1"), 1.0)
    assert found.expected(mine) == (7.0,) * 3
    assert found.expected(mine[:1]) == (7.0,) * 3


def test_a_member_and_the_same_command_alone_know_of_each_other() -> None:
    same, found = command("python", "sweep.py", "1"), RunTimesSeen()
    for number, array in enumerate(("run-1", None, "run-2")):
        found.add(kinds_of(same, array), float(number))
        found.add(kinds_of(command("python", "sweep.py", "2"), array), 50.0)
    assert found.expected(kinds_of(same)) == found.expected(kinds_of(same, "run-3")) == (0.0, 1.0, 2.0)


def test_the_latest_fifty_of_a_kind_are_kept() -> None:
    assert set(seen(fine=[1.0] * 50 + [2.0] * 50).expected(("fine",))) == {2.0}


def test_what_a_person_typed_is_a_bound() -> None:
    assert seen(fine=[10, 20, 30]).expected(("fine",), limit_s=15) == (10, 15, 15)


def test_one_that_runs_is_like_those_that_ran_longer() -> None:
    assert left_after((10, 20, 30), 0) == (10, 20, 30)
    assert left_after((10, 20, 30), 15) == (5, 15)
    assert left_after((10, 20, 30), 20) == (10,)


def test_one_that_has_outlived_all_may_run_on_for_another_tenth_to_twice_its_age() -> None:
    assert left_after((10,), 1000) == (100.00000000000009, 500.0, 1000.0, 2000.0)
    assert left_after((10,), 11) == (60, 60, 60, 60)


def test_what_is_expected_is_kept_of_a_bounded_number_of_kinds_and_until_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_times, "_MOST_KINDS", 5)
    known = seen(fine=[10.0] * 3)
    for number in range(12):
        known.expected((f"kind {number}", "fine"))
    assert len(known._expected) <= 5
    assert known.expected(("fine",)) == (10, 10, 10)
    known.add(("fine",), 20.0)
    assert known.expected(("fine",)) == (10, 10, 10, 20)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0, 1e6), st.none() | st.floats(1, 1e6))
def test_there_is_always_an_expectation_that_rises(runs: list[float], age: float, limit: float | None) -> None:
    expected = seen(fine=runs).expected(("fine",), limit)
    assert limit is None or expected[-1] <= limit
    left = left_after(expected, age)
    assert left
    assert list(left) == sorted(left)
    assert left[0] >= 0


def test_the_same_command_is_nearer_than_the_same_program_and_a_workload_has_its_options() -> None:
    one, other = submission(part(0.4)), submission(part(0.4), cwd="/elsewhere")
    assert kinds_of(one)[0] != kinds_of(other)[0]
    assert kinds_of(one)[1:] == kinds_of(other)[1:]
    small, large = submission(ask(actor=(1, 5)), options=b'{"a":1}'), submission(ask(actor=(2, 5)), options=b'{"a":1}')
    assert kinds_of(small)[0] != kinds_of(large)[0]
    assert kinds_of(small)[1:] == kinds_of(large)[1:]


def command(*argv: str, name: str | None = None) -> Submission:
    asked = submission(part(0.4), name=name)
    return replace(asked, workload=replace(asked.workload, roles=(Role(name="command", command=argv),)))


def test_commands_without_a_name_have_no_name_in_common_and_modules_are_different_programs() -> None:
    assert not set(kinds_of(command("nvidia-smi"))) & set(kinds_of(command("python", "train.py")))
    assert set(kinds_of(command("a", name="x"))) & set(kinds_of(command("b", name="x"))) == {"name x"}
    assert kinds_of(command("python", "train.py", "1"))[1] == kinds_of(command("python", "train.py", "2"))[1]
    assert kinds_of(command("python", "-m", "one"))[1] != kinds_of(command("python", "-m", "two"))[1]
    assert kinds_of(command("sh", "-c", "one"))[1] != kinds_of(command("sh", "-c", "two"))[1]


def test_the_kinds_that_ended_longest_ago_are_forgotten() -> None:
    found = RunTimesSeen()
    for number in range(6000):
        found.add(("often", f"once {number}"), 7.0)
    assert len(found._by_kind) == 5000
    assert found.expected(("often",)) == (7.0,) * 50


_adds = st.tuples(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True), st.integers(1, 99))


@given(st.lists(_adds, max_size=30))
def test_what_is_expected_is_as_if_it_were_asked_for_the_first_time(adds: list[tuple[list[str], int]]) -> None:
    asked, kinds = RunTimesSeen(), ("a", "b", "c")
    for number, (of, seconds) in enumerate(adds):
        asked.add(of, float(seconds))
        new = RunTimesSeen()
        for each, ran_s in adds[: number + 1]:
            new.add(each, float(ran_s))
        for first in range(len(kinds) + 1):
            assert asked.expected(kinds[first:]) == new.expected(kinds[first:])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9).map(sorted).map(tuple))
def test_the_middle_is_the_median(sample: RunTimes) -> None:
    assert middle_of(sample) == statistics.median(sample)
