"""Events of the running server."""

import json
import socket
from typing import Any

from tests.patience import PATIENCE_S
from tests.web.server import Server


class Stream:
    """Events, read at the pace that a test wants."""

    def __init__(self, server: Server, cookie: str, path: str = "/events") -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        path = server.keyed(path, cookie)
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nCookie: {cookie}\r\n\r\n"
        self._socket.sendall(request.encode())
        self._file = self._socket.makefile("rb")
        self.lines: list[bytes] = []

    def next(self, name: str = "") -> dict[str, Any]:
        """The next event of that name, empty for one that the moment has to be asked for again."""
        while True:
            of = ""
            while not (line := self._line()).startswith(b"data: "):
                assert line, "the stream has ended"
                of = line.decode().strip().removeprefix("event: ") if line.startswith(b"event: ") else of
            if of == name:
                return dict(json.loads(line[len(b"data: ") :]))

    def _line(self) -> bytes:
        self.lines.append(self._file.readline())
        return self.lines[-1]

    def until_over(self) -> list[dict[str, Any]]:
        """All events up to the last."""
        found = [self.next()]
        while not found[-1]["over"]:
            found.append(self.next())
        return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()
