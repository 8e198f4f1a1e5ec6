"""Who may ask what of the page: each decision that keeps others out, as values. No I/O.

On loopback each user of the host, and each page in this person's browser, can reach the page. So a request needs what
only a login gives, a Host that is this server's (DNS rebinding), and an allowed method; and a browser runs and loads
nothing but what comes from here. As in Jupyter, a secret in the printed address is exchanged for a session; here it is
good for one use.

A session has two secrets. A browser sends the cookie to all servers on 127.0.0.1, at whatever port (RFC 6265, 8.5), and
so to those of other users; no script can read it. The key is kept by the page, which no server at another port can
read, and sent with each request that shows or does anything.
"""

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gpusched.errors import GpuschedError

__all__ = [
    "ACTIONS",
    "HEADERS",
    "KEY",
    "Asked",
    "Denied",
    "Logins",
    "Session",
    "Site",
    "at_address",
    "denied",
    "on_loopback",
]

_LOG: Final = logging.getLogger(__name__)
_BYTES: Final = 32
KEY: Final = "key"
"""The parameter of a request that has the key of a session."""

_MOST_SESSIONS: Final = 100
"""Logins that are kept, the latest; a person has a handful of browsers."""

_READS: Final = ("GET", "HEAD")
_JSON: Final = "application/json"

ACTIONS: Final = "/do"
"""The one route that changes anything."""

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


class Site(NamedTuple):
    """A server as browsers name it: the `address` that is opened, and the values of Host that are it.

    `origin`: of its own page, where that is not http:// and the Host.
    """

    address: str
    hosts: frozenset[str]
    origin: str | None = None

    @property
    def cookie(self) -> str:
        """The name of its cookie. Servers at two ports of a host share their cookies; __Host- is sent by TLS alone."""
        return "__Host-gpusched" if self.is_secret else f"gpusched_{self.address.rpartition(':')[2]}"

    @property
    def is_secret(self) -> bool:
        """Whether it is reached through TLS."""
        return self.address.startswith("https:")


def on_loopback(port: int) -> Site:
    """Return the site of a server that this host alone can open."""
    return Site(f"http://127.0.0.1:{port}", _names(port))


def at_address(address: str, port: int) -> Site:
    """Return the site of a server that is opened as `address`, such as https://lab:8470, also through a proxy.

    A proxy of this host may ask for it as 127.0.0.1 at that port; the Origin is what the browser had opened.
    """
    return Site(address, _names(port) | {address.partition("://")[2]}, address)


def _names(port: int) -> frozenset[str]:
    return frozenset({f"127.0.0.1:{port}"})  # localhost may be ::1, where another user's server can listen


class Denied(NamedTuple):
    """Why a request gets no answer: a status of HTTP, and a sentence for the person."""

    status: int
    text: str


class Session(NamedTuple):
    """The secrets of one login: the value of its cookie, and the key that its page has."""

    cookie: str
    key: str


class Logins:
    """The secrets of one server: of the next login, of the sessions that there are, and of who reads the metrics.

    `offer` gets the secret of the next login, now and after each use of one. `metrics` None: only a session reads them.
    """

    def __init__(self, offer: Callable[[str], None], metrics: str | None = None) -> None:
        self._sessions: list[Session] = []
        self._offer, self._metrics = offer, metrics
        self._next = self._offered()

    def log_in(self, secret: str) -> Session | None:
        """Return a new session; None if this is not the secret of the next login."""
        if not _equal(secret, self._next):
            return None
        session = Session(secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES))
        self._sessions = [*self._sessions, session][-_MOST_SESSIONS:]
        try:
            self._next = self._offered()
        except (GpuschedError, OSError) as error:  # this login is good all the same
            self._next = secrets.token_urlsafe(_BYTES)
            _LOG.warning("the address of the next login cannot be shown: %s", error)
        return session

    def is_in(self, cookie: str | None, key: str | None) -> bool:
        """Return whether these are of one session. It takes the same time for each wrong one."""
        given = f"{cookie} {key}"
        return any([_equal(given, f"{one.cookie} {one.key}") for one in self._sessions])  # noqa: C419 (all are compared)

    def has_cookie(self, cookie: str | None) -> bool:
        """Return whether that is the cookie of a session, which is enough for the page without anything on it."""
        return any([_equal(cookie or "", one.cookie) for one in self._sessions])  # noqa: C419 (all are compared)

    def may_read_metrics(self, authorization: str | None) -> bool:
        """Return whether that is the header of who may read the metrics without a session: `Bearer SECRET`."""
        return self._metrics is not None and _equal(authorization or "", f"Bearer {self._metrics}")

    def _offered(self) -> str:
        secret = secrets.token_urlsafe(_BYTES)
        self._offer(secret)
        return secret


class Asked(NamedTuple):
    """What the guard reads of a request: each header as often as it was sent."""

    method: str
    path: str
    hosts: list[str]
    origins: list[str]
    kinds: list[str]
    """Its Content-Type."""


def denied(asked: Asked, site: Site) -> Denied | None:
    """Return why a request to this site is refused, of any sender; None if it is not.

    What changes something has to come from this server's own page: with its Origin, and as JSON, which no form sends
    and no page of another server may (CORS).
    """
    if len(asked.hosts) != 1 or asked.hosts[0].lower() not in site.hosts:
        return Denied(421, "This name is not one of this server: open the address that `gpusched web` has printed.")
    if asked.path != ACTIONS:
        return None if asked.method in _READS else Denied(405, "GET and HEAD are the methods here.")
    if asked.method != "POST":
        return Denied(405, "POST is the method here.")
    if asked.origins != [site.origin or f"http://{asked.hosts[0]}"]:
        return Denied(403, "This was not sent by this page.")
    if asked.kinds != [_JSON]:
        return Denied(415, f"Send it as {_JSON}.")
    return None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
