"""A server that notes what is posted to it, and answers as it is set to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec


class Posted(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        return dict(msgspec.json.decode(self.body))


class Webhook:
    """`answer` is the next answer: a code; with `held` set it comes once `gate` is. `posted` is what came."""

    def __init__(self, port: int = 0) -> None:
        self.answer, self.held = 200, False
        self.gate = threading.Event()
        self.posted: list[Posted] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.posted.append(Posted(dict(self.headers.items()), body))
                if hook.held:
                    hook.gate.wait()
                self.send_response(hook.answer)
                self.send_header("Location", f"{hook.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None: ...  # the other side has given up

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
