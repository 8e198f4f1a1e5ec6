"""Beyond loopback: with TLS, or behind a proxy that speaks it; nothing else is taken."""

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command import Command
from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.web.server import Server, listens

Serve = Callable[..., Server]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A certificate for localhost, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = tmp_path / "lab.pem", tmp_path / "lab.key"
    words = [
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    argv = ["openssl", "req", *words, "-days", "2", "-out", str(made[0]), "-keyout", str(made[1])]
    subprocess.run(argv, check=True, capture_output=True)
    return str(made[0]), str(made[1])


def ask(
    port: int, certificate: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    context = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=PATIENCE_S)
    body = '{"do": "stop", "job": "run-1"}' if method == "POST" else None
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    found = connection.getresponse()
    content = found.read()
    connection.close()
    return found.status, {name.lower(): value for name, value in found.getheaders()}, content


def test_with_a_certificate_it_is_open_to_other_hosts_by_tls_alone(serve: Serve, files: tuple[str, str]) -> None:
    certificate, key = files
    port = free_port()
    words = ("--address", f"https://localhost:{port}", "--certificate", certificate, "--key", key)
    server = serve(*words, port=False)
    address = server.address()
    assert address.startswith(f"https://localhost:{port}/?token=")
    parts = urlsplit(address)
    status, headers, _ = ask(port, certificate, f"{parts.path}?{parts.query}")
    assert status == 303
    key = headers["location"].removeprefix("/#")
    given = headers["set-cookie"]
    assert re.match(r"__Host-gpusched=[\w-]{40,}; HttpOnly; Path=/; SameSite=strict; Secure$", given), given
    cookie = given.partition(";")[0]
    assert ask(port, certificate, f"/moment?{key}", cookie=cookie)[0] == 200
    assert ask(port, certificate, "/")[0] == 401
    assert ask(port, certificate, "/", cookie=cookie, host="evil.example")[0] == 421
    kind = "application/json"
    for origin, expected in ((f"https://localhost:{port}", 404), (f"http://localhost:{port}", 403), ("null", 403)):
        sent = ask(port, certificate, f"/do?{key}", "POST", cookie=cookie, origin=origin, content_type=kind)
        assert sent[0] == expected, origin
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain:
        plain.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        assert not plain.recv(4096).startswith(b"HTTP/"), "it speaks TLS alone"


def test_behind_a_proxy_it_stays_on_loopback_and_is_opened_by_the_name_of_the_proxy(serve: Serve) -> None:
    server = serve("--behind-proxy", "https://GPUs.lab.example/")
    address = server.address()
    assert address.startswith("https://gpus.lab.example/?token=")
    cookie_of = server.ask(address.removeprefix("https://gpus.lab.example"), host="gpus.lab.example")
    assert "; Secure" in cookie_of.headers["set-cookie"]
    cookie = cookie_of.headers["set-cookie"].partition(";")[0]
    key = cookie_of.headers["location"].removeprefix("/#")
    for host in ("gpus.lab.example", f"127.0.0.1:{server.port}"):  # a proxy may pass either on
        assert server.ask("/", cookie=cookie, host=host).status == 200
        for origin, expected in (
            ("https://gpus.lab.example", 404),
            (f"http://{host}", 403),
            ("http://gpus.lab.example", 403),
        ):
            headers = {"cookie": cookie, "host": host, "origin": origin, "content_type": "application/json"}
            assert (
                server.ask(f"/do?{key}", "POST", json.dumps({"do": "stop", "job": "run-1"}), **headers).status
                == expected
            )
    assert server.ask("/", cookie=cookie, host="lab.example").status == 421
    assert server.ask(f"/events?{key}", cookie=cookie, host="gpus.lab.example").headers["x-accel-buffering"] == "no"
    assert listens(server.port) == ["0100007F"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--address", "https://lab:1"), "belong together"),
        (("--address", "https://lab:1", "--certificate", "a"), "belong together"),
        (("--certificate", "a", "--key", "b"), "belong together"),
        (("--behind-proxy", "https://lab", "--key", "b"), "belong together"),
        (("--behind-proxy", "http://lab"), "is no address with TLS"),
        (("--behind-proxy", "https://lab/page"), "is no address with TLS"),
        (("--behind-proxy", "https://me@lab"), "is no address with TLS"),
        (("--address", "https://lab:0", "--certificate", "a", "--key", "b"), "is no address with TLS"),
        (("--address", "https://lab:70000", "--certificate", "a", "--key", "b"), "is no address with TLS"),
        (("--address", "http://lab:1", "--certificate", "a", "--key", "b"), "is no address with TLS"),
        (("--address", "https://lab:1", "--certificate", "/a", "--key", "/b"), "/a: no file that can be read"),
        (("--address", "https://lab:1", "--certificate", "/etc/passwd", "--key", "/etc/passwd"), "are no certificate"),
    ],
)
def test_anything_else_is_refused(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    refused = Command(tmp_path).run("web", *words)
    assert refused.returncode == 2
    assert told in refused.stderr
    assert len(refused.stderr.splitlines()) == 2


def test_a_key_with_a_passphrase_is_refused_and_none_is_asked_for(tmp_path: Path, files: tuple[str, str]) -> None:
    certificate, key = files
    argv = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", key, "-out", f"{key}.locked"]
    subprocess.run(argv, check=True, capture_output=True)
    words = ("--address", "https://localhost:1", "--certificate", certificate, "--key", f"{key}.locked")
    refused = Command(tmp_path).run("web", *words)
    assert refused.returncode == 2
    assert "without a passphrase" in refused.stderr


def test_a_socket_is_for_this_user_alone_and_ends_with_the_input(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = Command(tmp_path)
    process = command.start("web", "--socket", str(path), stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert oct(path.stat().st_mode)[-3:] == "600"
    taken = command.run("web", "--socket", str(path))
    assert (taken.returncode, "Address already in use" in taken.stderr) == (5, True)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    assert not path.exists(), "it leaves nothing in /tmp"
    command.end()
