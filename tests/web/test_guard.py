"""Who is let in: logins, names and methods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.web.guard import HEADERS, Logins, denied

NAMES = frozenset({"127.0.0.1:8470", "localhost:8470"})


def test_a_secret_is_good_for_one_login_and_another_one_is_offered() -> None:
    offered: list[str] = []
    logins = Logins(offered.append)
    (first,) = offered
    session = logins.log_in(first)
    assert session is not None
    assert logins.is_in(session)
    assert logins.log_in(first) is None, "a stolen address is of no use"
    assert len(set(offered)) == 2
    other = logins.log_in(offered[-1])
    assert other is not None
    assert logins.is_in(session)
    assert logins.is_in(other)
    assert session not in offered


@given(st.text() | st.none())
def test_nothing_else_is_let_in(guess: str | None) -> None:
    logins = Logins(lambda _: None, metrics="0123456789abcdef")
    assert not logins.is_in(guess)
    assert logins.log_in(guess or "") is None
    assert not logins.may_read_metrics(guess)


def test_metrics_have_a_secret_of_their_own_that_is_no_login() -> None:
    logins = Logins(lambda _: None, metrics="0123456789abcdef")
    assert logins.may_read_metrics("Bearer 0123456789abcdef")
    assert not logins.may_read_metrics("0123456789abcdef")
    assert not logins.is_in("0123456789abcdef")
    assert logins.log_in("0123456789abcdef") is None
    assert not Logins(lambda _: None).may_read_metrics("Bearer None")


def test_sessions_do_not_pile_up() -> None:
    offered: list[str] = []
    logins = Logins(offered.append)
    sessions = [logins.log_in(offered[-1]) for _ in range(150)]
    assert not logins.is_in(sessions[0])
    assert logins.is_in(sessions[-1])


@pytest.mark.parametrize(
    ("method", "hosts", "status"),
    [
        ("GET", ["127.0.0.1:8470"], None),
        ("HEAD", ["LOCALHOST:8470"], None),
        ("GET", ["evil.example:8470"], 421),
        ("GET", ["127.0.0.1"], 421),
        ("GET", ["127.0.0.1:8471"], 421),
        ("GET", [], 421),
        ("GET", ["127.0.0.1:8470", "evil.example"], 421),
        *(
            (method, ["127.0.0.1:8470"], 405)
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "X")
        ),
    ],
)
def test_only_reads_of_this_servers_own_names_are_let_through(
    method: str, hosts: list[str], status: int | None
) -> None:
    found = denied(method, hosts, NAMES)
    assert (None if found is None else found.status) == status


def test_a_browser_runs_nothing_that_stands_in_the_page_or_comes_from_elsewhere() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
