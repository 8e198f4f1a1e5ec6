"""Spans and moments as people type them."""

import contextlib
import datetime as dt
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.errors import UsageError
from gpusched.times import parse_moment, parse_seconds, parse_span

NOW = dt.datetime(2026, 11, 21, 14, 30, 10).astimezone()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("15min", 900),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1-12:00:00", 129_600),
        ("00:01:30", 90),
        ("100:00:00", 360_000),
        (" 90s ", 90),
    ],
)
def test_spans_are_read(text: str, seconds: float) -> None:
    assert parse_span(text, "--time-limit") == seconds


@pytest.mark.parametrize(
    "text",
    ["", "90", "1.5", "-5m", "0s", "00:00:00", "5 m", "5x", "1:30", "00:61:00", "m", "999999999m", "1h1h", "nan", "٣s"],
)
def test_what_is_no_span_is_told_with_the_option_and_what_to_give(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_span(text, "--time-limit")

    assert error.value.message.startswith("--time-limit: ")
    assert "1-12:00:00" in error.value.hint


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), (" 0.5 ", 0.5), ("90s", 90), ("00:01:30", 90)])
def test_where_it_can_only_mean_seconds_a_bare_number_does(text: str, seconds: float) -> None:
    assert parse_seconds(text, "--grace") == seconds


@pytest.mark.parametrize("text", ["0", "-5", "", "1.2.3", "٣"])
def test_what_is_no_number_of_seconds_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--grace: "):
        parse_seconds(text, "--grace")


@given(st.text(max_size=12))
def test_any_text_is_a_positive_span_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_span(text, "x") > 0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("14:31", "2026-11-21T14:31:00"),
        ("14:30", "2026-11-22T14:30:00"),
        ("3:00", "2026-11-22T03:00:00"),
        ("23:59:59", "2026-11-21T23:59:59"),
        ("2026-11-22T03:00", "2026-11-22T03:00:00"),
        ("2026-11-22 03:00", "2026-11-22T03:00:00"),
        ("2026-11-22", "2026-11-22T00:00:00"),
        ("+2h", "2026-11-21T16:30:10"),
        ("+90s", "2026-11-21T14:31:40"),
    ],
)
def test_moments_are_read_in_local_time(text: str, moment: str) -> None:
    assert parse_moment(text, NOW, "--at") == dt.datetime.fromisoformat(moment).astimezone().timestamp()


def test_a_moment_may_name_its_zone() -> None:
    assert parse_moment("2026-11-23T03:00+00:00", NOW, "--at") == 1_795_402_800


@pytest.mark.parametrize("text", ["", "25:00", "noon", "2026-11-21T14:00", "2020-01-01", "+", "+5", "2026-13-01"])
def test_what_is_no_moment_to_come_is_told_with_the_option(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_moment(text, NOW, "--at")

    assert error.value.message.startswith("--at: ")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Tokyo"])
@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59", "9999-12-31T23:59-12:00", "0001-01-01", "0001-01-01T00:00+14:00", "2058-01-01"]
)
def test_a_moment_at_the_end_of_the_calendar_is_refused_in_any_time_zone(
    text: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with pytest.raises(UsageError, match="is over"):
            parse_moment(text, dt.datetime(2026, 11, 21, 14, 30, 10).astimezone(), "--at")
    finally:
        monkeypatch.undo()
        time.tzset()
