"""Who may ask what of the page: each decision that keeps others out, as values. No I/O.

On loopback each user of the host, and each page in this person's browser, can reach the page. So a request needs a
cookie that only a login gives, a Host that is this server's (DNS rebinding), and an allowed method; and a browser runs
and loads nothing but what comes from here. As in Jupyter, a secret in the printed address is exchanged for the cookie;
here it is good for one use.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["ACTIONS", "HEADERS", "Asked", "Denied", "Logins", "Site", "at_address", "denied", "on_loopback"]

_BYTES: Final = 32
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
    return frozenset(f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]"))


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
