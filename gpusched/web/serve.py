"""The server of the page: it binds loopback, prints the address to open, and serves until it is ended."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Final

from gpusched.errors import HostFault
from gpusched.web.application import application
from gpusched.web.guard import Logins

__all__ = ["serve"]

_LOOPBACK: Final = "127.0.0.1"
_FIRST: Final = 8470
_TRIED: Final = 20
_MOST_AT_ONCE: Final = 300
_KEPT_ALIVE_S: Final = 5


def serve(port: int | None, show: Callable[[str], None], metrics_secret: str | None = None) -> None:
    """Serve the page at `port`, or the first free one of some, until a signal ends it. Raises HostFault.

    `show` gets an address to open, now and after each login: it is good for one. `metrics_secret`: what a reader of
    /metrics may show in the place of a login (`Authorization: Bearer SECRET`).
    """
    import uvicorn

    listening = _listening(port)
    with closing(listening):
        taken = listening.getsockname()[1]
        logins = Logins(lambda secret: show(f"http://{_LOOPBACK}:{taken}/?token={secret}"), metrics_secret)
        config = uvicorn.Config(
            application(logins, taken),
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_MOST_AT_ONCE,
            timeout_keep_alive=_KEPT_ALIVE_S,
            timeout_graceful_shutdown=1,
            ws="none",
            proxy_headers=False,
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        uvicorn.Server(config).run(sockets=[listening])


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for what uvicorn calls errors where pages are open at the end: their streams are cancelled."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is not asyncio.CancelledError and not str(record.msg).startswith("Cancel %s running task")


def _listening(port: int | None) -> socket.socket:
    """Return a socket that is bound to loopback: to that port, or to the first free one. Raises HostFault."""
    wanted = range(_FIRST, _FIRST + _TRIED) if port is None else (port,)
    for number in wanted:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((_LOOPBACK, number))
            found.listen()  # before the address is printed: it can be opened at once
        except OSError as error:
            found.close()
            why = error.strerror
        else:
            return found
    raise HostFault(f"port {wanted[-1]} of {_LOOPBACK}: {why}", "give another one: --port 9000")
