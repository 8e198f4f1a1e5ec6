"""The members of an array: each combination of values once, and words of a command filled in with them."""

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.model.array import Array, Numbers, array_of, filled_in, member_id, number_of_member, parameters

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
some_values = st.lists(texts, min_size=1, max_size=4).map(tuple) | st.builds(
    lambda first, more: Numbers(first=first, last=first + more), st.integers(-5, 5), st.integers(0, 3)
)


def listed(values: Numbers | tuple[str, ...]) -> list[str]:
    return [str(n) for n in range(values.first, values.last + 1)] if isinstance(values, Numbers) else list(values)


@given(st.lists(some_values, min_size=1, max_size=4), st.integers(0, 100))
def test_every_combination_is_one_member_the_last_parameter_changing_fastest(
    values: list[Numbers | tuple[str, ...]], first: int
) -> None:
    names = tuple(f"p{place}" for place in range(len(values)))
    combinations = list(product(*map(listed, values)))
    array = Array(count=len(combinations), first=first, names=names, values=tuple(values))
    assert array.fits
    assert [tuple(parameters(array, number).values()) for number in array.numbers] == combinations
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(array), type=Array) == array


@pytest.mark.parametrize(
    "array",
    [
        Array(count=3, names=("a",), values=(("1", "2"),)),
        Array(count=2, names=("a", "b"), values=(("1", "2"),)),
        Array(count=2, names=("a",), rows=(("1",),)),
        Array(count=2, names=("a", "b"), rows=(("1",), ("2",))),
        Array(count=1, names=("a",), values=(Numbers(first=2, last=1),)),
        Array(count=1, names=("a",), values=(("1",),), rows=(("1",),)),
    ],
)
def test_names_values_rows_and_count_that_do_not_go_together_do_not_fit(array: Array) -> None:
    assert not array.fits


def test_only_the_names_of_parameters_are_filled_in() -> None:
    values = {"lr": "1e-3", "batch-size": "64"}
    assert filled_in("--lr={lr} {batch-size} {rank} {{lr}} {}", values) == "--lr=1e-3 64 {rank} {1e-3} {}"
    assert filled_in("{lr}", {"lr": "{seed}", "seed": "1"}) == "{seed}"


def test_the_id_of_a_member_names_its_array_and_its_number() -> None:
    assert (array_of(member_id("train-7", 3)), number_of_member(member_id("train-7", 3))) == ("train-7", 3)
    assert (array_of("train-7"), number_of_member("train-7"), array_of("train[x]")) == (None, 0, None)
