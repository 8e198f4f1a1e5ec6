"""Whose random numbers are whose."""

from itertools import product

from workloads.common.chance import chance_of


def test_nobody_draws_what_another_part_of_the_run_draws() -> None:
    seeds, ranks, attempts = range(3), range(3), range(3)
    drawn = [
        *(chance_of("learner", *numbers).integers(2**62) for numbers in product(seeds, attempts)),
        *(chance_of("answers", *numbers).integers(2**62) for numbers in product(seeds, attempts)),
        *(chance_of("actor", *numbers).integers(2**62) for numbers in product(seeds, ranks, attempts)),
    ]
    assert len(set(drawn)) == len(drawn) == 9 + 9 + 27
    assert chance_of("actor", 1, 2, 0).integers(2**62) in drawn
