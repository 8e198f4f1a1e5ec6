"""Who may ask what of the page: each decision that keeps others out, as values. No I/O.

The page is on loopback, where each user of the host and each page in this person's browser can reach it. So a request
needs a cookie that only a login gives, a Host that is this server's (DNS rebinding), and an allowed method; and a
browser runs and loads nothing but what comes from here. As in Jupyter, a secret in the printed address is exchanged for
the cookie; here it is good for one use.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["HEADERS", "Denied", "Logins", "denied"]

_BYTES: Final = 32
_MOST_SESSIONS: Final = 100
"""Logins that are kept, the latest; a person has a handful of browsers."""

_READS: Final = ("GET", "HEAD")

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What each answer carries."""


class Denied(NamedTuple):
    """Why a request gets no answer: a status of HTTP, and a sentence for the person."""

    status: int
    text: str


class Logins:
    """The secrets of one server: of the next login, of the sessions that there are, and of who reads the metrics.

    `offer` gets the secret of the next login, now and after each use of one. `metrics` None: only a session reads them.
    """

    def __init__(self, offer: Callable[[str], None], metrics: str | None = None) -> None:
        self._sessions: list[str] = []
        self._offer, self._metrics = offer, metrics
        self._next = self._offered()

    def log_in(self, secret: str) -> str | None:
        """Return the value of a new session's cookie; None if this is not the secret of the next login."""
        if not _equal(secret, self._next):
            return None
        self._next = self._offered()
        session = secrets.token_urlsafe(_BYTES)
        self._sessions = [*self._sessions, session][-_MOST_SESSIONS:]
        return session

    def is_in(self, session: str | None) -> bool:
        """Return whether that is the cookie of a session. It takes the same time for each wrong one."""
        return any([_equal(session or "", known) for known in self._sessions])  # noqa: C419 (all are compared)

    def may_read_metrics(self, authorization: str | None) -> bool:
        """Return whether that is the header of who may read the metrics without a session: `Bearer SECRET`."""
        return self._metrics is not None and _equal(authorization or "", f"Bearer {self._metrics}")

    def _offered(self) -> str:
        secret = secrets.token_urlsafe(_BYTES)
        self._offer(secret)
        return secret


def denied(method: str, hosts: list[str], names: frozenset[str]) -> Denied | None:
    """Return why a request of any sender is refused, None if it is not.

    `hosts`: its Host headers, of which there must be one, one of `names` (with the port).
    """
    if len(hosts) != 1 or hosts[0].lower() not in names:
        return Denied(421, "This name is not one of this server: open the address that `gpusched web` has printed.")
    if method not in _READS:
        return Denied(405, "This page only shows: GET and HEAD are its methods.")
    return None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
