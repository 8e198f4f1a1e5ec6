"""Amounts: what people write is read exactly or refused by name; what is rounded is rounded down."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.errors import UsageError
from gpusched.units import (
    FRACTION_ONE,
    format_mib,
    format_seconds,
    fraction_of,
    parse_count,
    parse_fraction,
    parse_mib,
    portion,
)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512MiB", 512),
        ("2GiB", 2048),
        ("1.5 GiB", 1536),
        (" 1TiB ", 1 << 20),
        ("1024KiB", 1),
        ("16GB", 15258),  # decimal units are 1000s: rounded down to whole MiB
        ("1MB", 0),
        ("6G", 6144),  # as to Slurm and Docker
        ("6g", 6144),
        ("6Gi", 6144),
        ("6gib", 6144),
        ("1 G", 1024),
        ("512m", 512),
        ("6gb", 5722),
        ("1.999999MiB", 1),
        ("0.5GiB", 512),
        ("1024TiB", 1 << 30),
    ],
)
def test_an_amount_is_read_as_whole_mib_rounded_down(text: str, mib: int) -> None:
    if mib == 0:
        with pytest.raises(UsageError, match="less than 1 MiB"):
            parse_mib(text)
    else:
        assert parse_mib(text) == mib


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "  ",
            "0",
            "0MiB",
            "0.0GiB",
            "-1GiB",
            "+1GiB",
            "1",
            "1.5",
            "12 XiB",
            "GiB",
            "1bg",
            "1Gbi",
            "1 P",
            "1 \u212a",
            "NaN",
            "NaNMiB",
        ),
        *(
            "inf",
            "1e3MiB",
            "1,5GiB",
            "1.GiB",
            ".5GiB",
            "1_000MiB",
            "1GiB 1GiB",
            "0x10MiB",
            "1025TiB",
            "9999999999999MiB",
        ),
        *(None, 512, 1.5, True, ["1GiB"], {"min": 1}, b"1GiB"),
    ],
)
def test_anything_else_is_refused_with_its_name_and_what_to_write(text: object) -> None:
    with pytest.raises(UsageError, match="--actor-memory: ") as caught:
        parse_mib(text, "--actor-memory")
    assert "512MiB" in caught.value.hint
    assert caught.value.exit_code == 2


@given(whole=st.integers(0, 1 << 20), hundredths=st.integers(0, 99), power=st.integers(1, 4), binary=st.booleans())
def test_no_amount_is_off_by_a_single_mib(whole: int, hundredths: int, power: int, binary: bool) -> None:
    unit = (1 << 10 * power) if binary else 1000**power
    exact = Fraction(f"{whole}.{hundredths:02}") * unit // (1 << 20)
    text = f"{whole}.{hundredths:02}{'KMGT'[power - 1]}{'iB' if binary else 'B'}"
    if 0 < exact <= 1 << 30:
        assert parse_mib(text) == exact
    else:
        with pytest.raises(UsageError):
            parse_mib(text)


@given(mib=st.integers(1, 1 << 30))
def test_what_is_written_in_mib_is_read_back(mib: int) -> None:
    assert parse_mib(f"{mib}MiB") == parse_mib(f"{mib} MiB") == mib


@given(ten_thousandths=st.integers(1, FRACTION_ONE))
def test_every_fraction_of_four_decimals_is_read_exactly(ten_thousandths: int) -> None:
    assert parse_fraction(float(f"{ten_thousandths / FRACTION_ONE:.4f}")) == ten_thousandths


@pytest.mark.parametrize(
    ("number", "fraction"), [(1, 10_000), (1.0, 10_000), (0.75, 7500), (0.29, 2900), (1 / 3, 3333)]
)
def test_a_fraction_is_rounded_down(number: float, fraction: int) -> None:
    assert parse_fraction(number) == fraction


@pytest.mark.parametrize("value", [0, 0.0, -0.5, 1.0001, 2, 0.00009, float("nan"), float("inf"), True, "0.5", None, []])
def test_what_is_no_fraction_is_refused_with_its_name(value: object) -> None:
    with pytest.raises(UsageError, match=r"share: .* is not a fraction"):
        parse_fraction(value, "share")


@pytest.mark.parametrize(("text", "count"), [("0", 0), (" 32 ", 32), ("007", 7), ("1000000", 1_000_000)])
def test_a_count_is_a_whole_number(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", "1e3", "many", "NaN", "1000001", "99999999999999999999", "1 2", "0x1"]
)
def test_what_is_no_count_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(UsageError, match="--procs: "):
        parse_count(text, "--procs")


@given(whole=st.integers(1, 1 << 30), part=st.integers(0, 1 << 30))
def test_a_fraction_never_stands_for_more_than_its_part(whole: int, part: int) -> None:
    part = min(part, whole)
    fraction = fraction_of(part, whole)
    assert 0 <= fraction <= FRACTION_ONE
    assert portion(whole, fraction) <= part
    assert portion(whole, fraction + 1) >= part - 1


@pytest.mark.parametrize(("mib", "text"), [(0, "0 MiB"), (512, "512 MiB"), (10239, "10239 MiB"), (10240, "10.0 GiB")])
def test_amounts_are_shown_in_the_unit_that_people_read_easily(mib: int, text: str) -> None:
    assert format_mib(mib) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (59, "59 s"),
        (187, "3m07s"),
        (7200, "2h00m"),
        (7199.9, "1h59m"),
        (273_600, "3d04h"),
    ],
)
def test_a_span_of_time_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
