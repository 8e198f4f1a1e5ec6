"""The server of the page: it shows the address to open, and serves until it is ended."""

import asyncio
import logging
import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn

from gpusched.api.host import StatusReader
from gpusched.web.application import application
from gpusched.web.connections import Connection
from gpusched.web.feed import Feed
from gpusched.web.guard import Logins
from gpusched.web.listening import BEAT_S, Listening
from gpusched.web.source import Source

if TYPE_CHECKING:
    from gpusched.web.remote import Remote

__all__ = ["serve", "serve_until_input_ends"]

_BLOCK: Final = 4096
_SILENT_S: Final = 6 * BEAT_S
_MOST_AT_ONCE: Final = 300
_KEPT_ALIVE_S: Final = 5


def serve(
    listening: Listening,
    show: Callable[[str], None],
    metrics_secret: str | None = None,
    remotes: "Sequence[Remote]" = (),
    machine: str | None = None,
) -> None:
    """Serve the page there until a signal ends it, with other hosts on it: `remotes`.

    `machine`: whose devices are shown, as `status --machine` does; None: those of this host.

    `show` gets an address to open, now and after each login: it is good for one. `metrics_secret`: what a reader of
    /metrics may show in the place of a login (`Authorization: Bearer SECRET`).
    """
    site = listening.site
    logins = Logins(lambda secret: show(f"{site.address}/?token={secret}"), metrics_secret)
    with closing(listening.socket):
        _server(listening, logins, remotes, machine).run(sockets=[listening.socket])


def serve_until_input_ends(listening: Listening, ready: Callable[[], None], silent_s: float = _SILENT_S) -> None:
    """Serve the page without logins, for who can open the socket, until the standard input ends or a signal comes.

    It ends, too, when nothing could be read from there for `silent_s` seconds.
    """
    with closing(listening.socket), ExitStack() as stack:
        stack.callback(Path(listening.socket.getsockname()).unlink, missing_ok=True)
        server = _server(listening, None)

        def wait_for_end() -> None:
            waiting = select.poll()
            waiting.register(0, select.POLLIN)
            with suppress(OSError):
                while waiting.poll(1000 * silent_s) and os.read(0, _BLOCK):
                    pass
            server.should_exit = True

        threading.Thread(target=wait_for_end, daemon=True).start()
        ready()
        server.run(sockets=[listening.socket])


def _server(
    listening: Listening, logins: Logins | None, remotes: "Sequence[Remote]" = (), machine: str | None = None
) -> uvicorn.Server:
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    server = uvicorn.Server(
        uvicorn.Config(
            application(listening.site, logins, Feed(Source(partial(StatusReader, machine))), remotes),
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_MOST_AT_ONCE,
            timeout_keep_alive=_KEPT_ALIVE_S,
            timeout_graceful_shutdown=1,
            http=Connection,
            ws="none",
            proxy_headers=False,
            ssl_certfile=listening.certificate,
            ssl_keyfile=listening.key,
        )
    )
    for number in (signal.SIGTERM, signal.SIGHUP):  # as with Ctrl-C, what is in /tmp goes, too
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, server.handle_exit)
    return server


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for what uvicorn calls errors and is none: open streams at the end, and another host that goes."""
    kind = record.exc_info[0] if record.exc_info else None
    expected = kind is asyncio.CancelledError or (kind is not None and kind.__module__.startswith("httpx"))
    return not expected and not str(record.msg).startswith("Cancel %s running task")
