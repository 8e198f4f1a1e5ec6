"""The page's server as a person starts it, and requests to it as a browser or an attacker makes them."""

import http.client
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.cli.command import Command
from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.stand_in.library import StandInHost


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Server:
    """`gpusched web` in a process of its own, on a host of the stand-in library."""

    def __init__(
        self, home: Path, host: StandInHost, *options: str, path: Path | None = None, port: bool = True, **env: str
    ) -> None:
        library = env | {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")}
        if path is not None:  # a folder whose programs are found first
            library["PATH"] = f"{path}:{os.environ['PATH']}"
        self.command, self.host = Command(home, library), host
        self.port = free_port()
        self._keys: dict[str, str] = {}
        self._process = self.command.start("web", *(("--port", str(self.port)) if port else ()), *options)

    def address(self) -> str:
        """The next address that is printed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found is not None, line
        return found[0]

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
        """One request; a header is given as `host="x"`, with _ for -. With a cookie the key of its login goes along."""
        path = self.keyed(path, headers.get("cookie", ""))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host="host" in named, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            if method == "POST":
                connection.putheader("content-length", str(len(body.encode())))
            connection.endheaders(body.encode() or None)
            found = connection.getresponse()
            content = b"" if found.headers.get_content_type() == "text/event-stream" else found.read()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, content)
        finally:
            connection.close()

    def log_in(self, address: str) -> str:
        """Open an address; return the cookie that it gives."""
        parts = urlsplit(address)
        answer = self.ask(f"{parts.path}?{parts.query}")
        assert answer.status == 303
        place, _, key = answer.headers["location"].partition("#key=")
        assert place == "/"
        cookie = answer.headers["set-cookie"].partition(";")[0]
        self._keys[cookie] = key
        return cookie

    def keyed(self, path: str, cookie: str) -> str:
        """Return a path with the key of the login that gave that cookie, if one did."""
        key = self._keys.get(cookie)
        return path if key is None else f"{path}{'&' if '?' in path else '?'}key={key}"

    def stop(self) -> int:
        """End it as Ctrl-C does; return its exit code."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def close_output(self) -> None:
        """Have nobody read what it prints."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def output(self) -> str:
        """What it has printed since the last address, once it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.command.end()


def listens(port: int) -> list[str]:
    """Return the IPv4 addresses, as the kernel writes them, on which something listens at that port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")]
