"""The running server, as a browser, Prometheus and others on the host meet it."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command, until
from tests.patience import PATIENCE_S
from tests.web.server import Server

Serve = Callable[..., Server]
PATHS = [
    "/",
    "/page.js",
    "/events",
    "/metrics",
    "/../../etc/passwd",
    "/static/page.js",
    "/%2e%2e/%2e%2e/etc/passwd",
    "//etc/passwd",
]


def test_without_a_login_nothing_is_shown_whatever_the_path(serve: Serve) -> None:
    server = serve()
    server.address()
    for path in PATHS:
        answer = server.ask(path)
        assert answer.status == 401, path
        assert b"gpusched web" in answer.body


def test_an_address_opens_the_page_once_and_then_there_is_another_one(serve: Serve) -> None:
    server = serve()
    first = server.address()
    cookie = server.log_in(first)
    page = server.ask("/", cookie=cookie)
    assert page.status == 200
    assert b"<title>gpusched</title>" in page.body
    stolen = server.ask(first.partition(str(server.port))[2])
    assert (stolen.status, "set-cookie" in stolen.headers) == (401, False)
    assert server.log_in(server.address()) != cookie
    assert server.ask("/", cookie=cookie).status == 200
    assert server.stop() == 130


def test_a_login_is_for_this_site_alone_and_no_script_can_read_it(serve: Serve) -> None:
    server = serve()
    address = server.address()
    given = server.ask(address.partition(str(server.port))[2]).headers["set-cookie"].lower()
    assert "httponly" in given
    assert "samesite=strict" in given
    assert given.startswith(f"gpusched_{server.port}=")


def test_another_name_for_this_host_is_refused_also_with_a_login(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "127.0.0.1",
        f"127.0.0.1:{server.port}.evil.example",
        "",
    ):
        assert server.ask("/", cookie=cookie, host=host).status in (400, 421), host
    assert server.ask("/", cookie=cookie, host=f"localhost:{server.port}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_nothing_is_written_by_any_method(serve: Serve, method: str) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    assert server.ask("/", method, cookie=cookie).status in (400, 404, 405)


@pytest.mark.parametrize("path", PATHS[4:])
def test_no_path_reaches_the_file_system(serve: Serve, path: str) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    answer = server.ask(path, cookie=cookie)
    assert answer.status == 404
    assert b"root:" not in answer.body


def test_each_answer_keeps_the_browser_to_this_server(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/metrics", "/nowhere", "/events"):
        headers = server.ask(path, cookie=cookie).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_prometheus_reads_with_a_secret_from_a_file_that_opens_nothing_else(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    server = serve("--metrics-token", str(path))
    server.address()
    assert oct(path.stat().st_mode)[-3:] == "600"
    bearer = f"Bearer {path.read_text().strip()}"
    answer = server.ask("/metrics", authorization=bearer)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"gpusched_device_utilization_ratio" in answer.body
    assert server.ask("/", authorization=bearer).status == 401
    assert server.ask("/metrics", authorization="Bearer x").status == 401


def test_a_secret_that_others_can_read_is_refused(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    refused = serve().command.run("web", "--metrics-token", str(path))
    assert refused.returncode == 2
    assert "others may read it" in refused.stderr
    path.chmod(0o600)
    path.write_text("short\n")
    assert serve().command.run("web", "--metrics-token", str(path)).returncode == 2


def test_a_port_that_is_taken_is_said_and_without_one_the_next_is_taken(serve: Serve) -> None:
    server = serve()
    server.address()
    taken = server.command.run("web", "--port", str(server.port))
    assert taken.returncode == 5
    assert f"port {server.port} of 127.0.0.1: Address already in use" in taken.stderr


def test_it_is_on_loopback_alone(serve: Serve) -> None:
    server = serve()
    server.address()
    line = next(
        line.split()
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A"
    )
    assert line[1].startswith("0100007F:")


class Stream:
    """The events, read at the pace that a test wants."""

    def __init__(self, server: Server, cookie: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        request = f"GET /events HTTP/1.1\r\nHost: localhost:{server.port}\r\nCookie: {cookie}\r\n\r\n"
        self._socket.sendall(request.encode())
        self._file = self._socket.makefile("rb")

    def next(self) -> dict[str, Any]:
        """The next moment."""
        while not (line := self._file.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        return dict(json.loads(line[len(b"data: ") :]))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def test_the_events_follow_what_happens_on_the_host(serve: Serve) -> None:
    server = serve()
    stream = Stream(server, server.log_in(server.address()))
    first = stream.next()
    assert [one["busy"] for one in first["devices"]] == [0, 37]
    assert first["jobs"] == []
    queued = server.command.run("run", "-d", "--fraction", "0.5", "--name", "<b>it</b>", "--", "sleep", "600")
    assert queued.returncode == 0, queued.stderr
    moment: dict[str, Any] = {}

    def runs() -> bool:
        moment.update(stream.next())
        return [(one["id"], one["state"]) for one in moment["jobs"]] == [("run-1", "running")]

    until(runs, "the page has the job")
    parts = {part["job"]: part["mib"] for part in moment["devices"][0]["parts"]}
    assert parts["run-1"] > 7000
    stream.close()


def test_a_reader_that_sleeps_keeps_no_other_from_reading(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    asleep, awake = [Stream(server, cookie) for _ in range(30)], Stream(server, cookie)
    for busy in (10, 20, 30):
        server.host.change(f"gpus 2\nset 1 util {busy}\n")
        until(lambda: awake.next()["devices"][1]["busy"] == busy, "it follows")  # noqa: B023
    assert server.ask("/page.js", cookie=cookie).status == 200
    for stream in (*asleep, awake):
        stream.close()
    assert server.stop() == 130


def test_without_the_extra_it_is_said_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['starlette'] = None; from gpusched.cli.main import main; sys.exit(main(['web']))"
    env = Command(tmp_path).env
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert refused.returncode == 5
    assert "the page needs starlette, which is not installed" in refused.stderr
    assert "pip install 'gpusched-daemon[web]'" in refused.stderr
