"""Who is let in: logins, names and methods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.web.guard import ACTIONS, HEADERS, Asked, Logins, denied, on_loopback

SITE = on_loopback(8470)


def test_a_secret_is_good_for_one_login_and_another_one_is_offered() -> None:
    offered: list[str] = []
    logins = Logins(offered.append)
    (first,) = offered
    session = logins.log_in(first)
    assert session is not None
    assert logins.is_in(*session)
    assert logins.log_in(first) is None, "a stolen address is of no use"
    assert len(set(offered)) == 2
    other = logins.log_in(offered[-1])
    assert other is not None
    assert logins.is_in(*session)
    assert logins.is_in(*other)
    assert not logins.is_in(session.cookie, other.key)
    assert len({*session, *other, *offered}) == 7, "no two secrets are the same"


@given(st.text() | st.none())
def test_nothing_else_is_let_in(guess: str | None) -> None:
    offered: list[str] = []
    logins = Logins(offered.append, metrics="0123456789abcdef")
    session = logins.log_in(offered[-1])
    assert session is not None
    assert not logins.is_in(guess, guess)
    assert not logins.is_in(session.cookie, guess)
    assert not logins.is_in(guess, session.key)
    assert not logins.has_cookie(guess)
    assert logins.log_in(guess or "") is None
    assert not logins.may_read_metrics(guess)


def test_where_an_address_cannot_be_shown_the_login_before_it_stands() -> None:
    offered: list[str] = []

    def offer(secret: str) -> None:
        offered.append(secret)
        if len(offered) > 1:
            raise BrokenPipeError

    logins = Logins(offer)
    session = logins.log_in(offered[0])
    assert session is not None
    assert logins.is_in(*session)


def test_metrics_have_a_secret_of_their_own_that_is_no_login() -> None:
    logins = Logins(lambda _: None, metrics="0123456789abcdef")
    assert logins.may_read_metrics("Bearer 0123456789abcdef")
    assert not logins.may_read_metrics("0123456789abcdef")
    assert not logins.is_in("0123456789abcdef", "0123456789abcdef")
    assert logins.log_in("0123456789abcdef") is None
    assert not Logins(lambda _: None).may_read_metrics("Bearer None")


def test_sessions_do_not_pile_up() -> None:
    offered: list[str] = []
    logins = Logins(offered.append)
    sessions = [logins.log_in(offered[-1]) for _ in range(150)]
    assert sessions[0] is not None
    assert not logins.is_in(*sessions[0])
    assert sessions[-1] is not None
    assert logins.is_in(*sessions[-1])


HERE = "127.0.0.1:8470"
OTHERS = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "X")


@pytest.mark.parametrize(
    ("method", "hosts", "status"),
    [
        ("GET", [HERE], None),
        ("GET", ["localhost:8470"], 421),
        ("HEAD", [HERE], None),
        ("GET", ["evil.example:8470"], 421),
        ("GET", ["127.0.0.1"], 421),
        ("GET", ["127.0.0.1:8471"], 421),
        ("GET", [], 421),
        ("GET", [HERE, "evil.example"], 421),
        *((method, [HERE], 405) for method in ("POST", *OTHERS)),
    ],
)
def test_only_reads_of_this_servers_own_names_are_let_through(
    method: str, hosts: list[str], status: int | None
) -> None:
    found = denied(Asked(method, "/moment", hosts, [f"http://{HERE}"], ["application/json"]), SITE)
    assert (None if found is None else found.status) == status


@pytest.mark.parametrize(
    ("method", "origins", "kinds", "status"),
    [
        ("POST", [f"http://{HERE}"], ["application/json"], None),
        *((method, [f"http://{HERE}"], ["application/json"], 405) for method in ("GET", "HEAD", *OTHERS)),
        ("POST", [], ["application/json"], 403),
        ("POST", ["null"], ["application/json"], 403),
        ("POST", ["http://evil.example"], ["application/json"], 403),
        ("POST", [f"https://{HERE}"], ["application/json"], 403),
        ("POST", ["http://localhost:8470"], ["application/json"], 403),
        ("POST", ["http://127.0.0.1:8471"], ["application/json"], 403),
        ("POST", [f"http://{HERE}", "http://evil.example"], ["application/json"], 403),
        ("POST", [f"http://{HERE}"], ["text/plain"], 415),
        ("POST", [f"http://{HERE}"], ["application/x-www-form-urlencoded"], 415),
        ("POST", [f"http://{HERE}"], [], 415),
    ],
)
def test_what_changes_something_comes_from_this_page_alone(
    method: str, origins: list[str], kinds: list[str], status: int | None
) -> None:
    found = denied(Asked(method, ACTIONS, [HERE], origins, kinds), SITE)
    assert (None if found is None else found.status) == status


def test_a_browser_runs_nothing_that_stands_in_the_page_or_comes_from_elsewhere() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
