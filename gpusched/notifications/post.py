"""Posts an event to a URL. A redirection is no delivery: urllib would follow it without the body."""

import contextlib
import hashlib
import hmac
import html
import os
import signal
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Final

import msgspec

from gpusched.linux.regular_files import read_regular
from gpusched.model.event import Event
from gpusched.notifications.destination import Destination
from gpusched.notifications.event_text import body, title

__all__ = ["post", "read_secret"]

SIGNATURE: Final = "X-Gpusched-Signature"
_LONGEST_KEY: Final = 4096
_LONGEST_REASON: Final = 100


def post(destination: Destination, event: Event, payload: bytes, limit_s: float) -> str | None:
    """Post an event; return why it was not delivered, None if it was. No text names more of the URL than its host."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlsplit

    host = urlsplit(destination.target).hostname
    try:
        content, headers = _written(destination, event, payload)
        if destination.secret_file is not None:
            digest = hmac.new(read_secret(destination.secret_file), content, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={digest}"
    except (OSError, ValueError) as error:
        return f"the secret file: {getattr(error, 'strerror', None) or error}"
    try:
        with _at_most(limit_s):
            _send(destination.target, content, headers, limit_s)
    except HTTPError as error:
        return f"{host} answered {error.code} {_printable(error.reason)}"
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error  # urllib wraps some, and some not
        if isinstance(reason, TimeoutError):
            return f"{host} did not answer within {limit_s:g} s"
        return f"{host}: {_printable(getattr(reason, 'strerror', None) or type(reason).__name__)}"
    return None


def read_secret(path: str) -> bytes:
    """Return the key in a file. Raises OSError, and ValueError for one that others may read, or that is empty."""
    real = os.path.realpath(path)
    if os.stat(real).st_mode & 0o077:  # noqa: PTH116 (as the line below)
        raise ValueError(f"others may read it: chmod 600 {path}")
    key = read_regular(real, _LONGEST_KEY).strip()
    if not key:
        raise ValueError(f"{path} is empty")
    return key


def _written(destination: Destination, event: Event, payload: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers as the other side wants them."""
    headers = {"X-Gpusched-Event": event.event, "X-Gpusched-Event-Id": event.id, "User-Agent": "gpusched"}
    if destination.kind == "ntfy":
        from email.header import Header

        subject = title(event)
        named = subject if subject.isascii() else Header(subject, "utf-8", maxlinelen=10_000).encode()
        return body(event).encode(), headers | {"Title": named, "Content-Type": "text/plain; charset=utf-8"}
    headers["Content-Type"] = "application/json"
    if destination.kind == "slack":
        text = html.escape(f"{title(event)}\n{body(event)}", quote=False)  # as docs.slack.dev has it
        return msgspec.json.encode({"text": text}), headers
    return payload, headers


def _send(url: str, content: bytes, headers: Mapping[str, str], limit_s: float) -> None:
    from urllib import request

    opener = request.OpenerDirector()  # by hand: neither files nor ftp, and no redirection
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPErrorProcessor(),
        request.HTTPDefaultErrorHandler(),
        request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    asked = request.Request(url, content, dict(headers), method="POST")  # noqa: S310 (http or https, as the opener)
    with opener.open(asked, timeout=limit_s):
        pass


@contextlib.contextmanager
def _at_most(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer: the timeout of a socket is one of each of its steps."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _printable(reason: object) -> str:
    return "".join(one if one.isprintable() else " " for one in str(reason))[:_LONGEST_REASON]
