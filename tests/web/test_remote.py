"""Other hosts on the same page, through a real sshd: what is there is seen and done from here, and where it is away."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.patience import until
from tests.stand_in.library import StandIn
from tests.web.server import Server
from tests.web.ssh import SSH, SSHD, Sshd, stub_in
from tests.web.stream import Stream

Serve = Callable[..., Server]
pytestmark = pytest.mark.skipif(None in (SSH, SSHD), reason="sshd is not installed")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    found = Sshd(tmp_path / "ssh")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def there(tmp_path: Path, stand_in: StandIn) -> Iterator[Command]:
    """The other host: three GPUs, a daemon and jobs of its own."""
    host = stand_in.host("gpus 3\nset * util 90\n")
    home = tmp_path / "there"
    home.mkdir()
    found = Command(home, {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")})
    yield found
    found.end()


def post(server: Server, cookie: str, job: str, host: str) -> Any:
    origin = f"http://127.0.0.1:{server.port}"
    headers = {"cookie": cookie, "origin": origin, "content_type": "application/json"}
    return server.ask(f"/do?host={host}", "POST", json.dumps({"do": "stop", "job": job}), **headers)


def moment(server: Server, cookie: str, host: str = "") -> dict[str, Any]:
    return dict(json.loads(server.ask(f"/moment?host={host}" if host else "/moment", cookie=cookie).body))


def test_a_job_there_is_seen_followed_and_stopped_and_one_here_of_the_same_id_is_not(
    serve: Serve, sshd: Sshd, there: Command
) -> None:
    server = serve("--host", f"lab2=ssh://lab2{sshd.program(there)}", path=sshd.path)
    cookie = server.log_in(server.address())
    script = ("sh", "-c", "echo it is there; exec sleep 600")
    assert there.run("run", "-d", "--fraction", "0.5", "--", *script).returncode == 0
    assert server.command.run("run", "-d", "--fraction", "0.5", "--", "sleep", "600").returncode == 0
    assert json.loads(server.ask("/hosts", cookie=cookie).body) == {"hosts": [{"name": "lab2", "read_only": False}]}
    until(lambda: [job["state"] for job in moment(server, cookie, "lab2").get("jobs", [])] == ["running"], "it is seen")
    assert [one["busy"] for one in moment(server, cookie, "lab2")["devices"]] == [90, 90, 90]
    assert len(moment(server, cookie)["devices"]) == 2
    stream = Stream(server, cookie, "/job/events?id=run-1&host=lab2")
    until(lambda: "it is there" in stream.next().get("lines", []), "its log is read there")
    answer = post(server, cookie, "run-1", "lab2")
    assert (answer.status, json.loads(answer.body)["done"]) == (200, "run-1 is stopping")
    until(lambda: there.job("run-1").get("state") == "cancelled", "it is stopped there")
    until(lambda: server.command.job("run-1").get("state") == "running", "the one here runs")
    assert "cancelled" in {event["job"]["state"] for event in stream.until_over() if "job" in event}
    assert server.ask("/moment?host=lab3", cookie=cookie).status == 404
    assert server.ask("/moment?host=lab2").status == 401


def test_all_hosts_come_as_one_stream_and_one_that_is_away_has_since_when_and_why_until_it_is_back(
    serve: Serve, sshd: Sshd, there: Command
) -> None:
    server = serve("--host", f"lab2=ssh://lab2{sshd.program(there)}", path=sshd.path)
    cookie = server.log_in(server.address())
    stream = Stream(server, cookie, "/events?after=0&host=lab2")

    def heard(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not wanted(found := stream.next("at-lab2")):
            pass
        return found

    heard(lambda part: part == {})
    assert len(heard(lambda part: "devices" in part)["devices"]) == 3
    sshd.stop()
    away = heard(lambda part: "away" in part)["away"]
    assert away["since"] > 1.6e9
    refused = heard(lambda part: "refused" in part.get("away", {}).get("why", ""))["away"]
    assert refused["since"] == away["since"], "since it was seen last"
    answer = server.ask("/moment?host=lab2", cookie=cookie)
    assert answer.status == 503
    assert "lab2 is away" in json.loads(answer.body)["error"]
    assert server.ask("/moment", cookie=cookie).status == 200
    sshd.start()
    heard(lambda part: part == {})
    assert len(moment(server, cookie, "lab2")["devices"]) == 3


def test_a_host_that_is_read_only_is_not_acted_on_and_no_server_stays_there_when_this_one_ends(
    serve: Serve, sshd: Sshd, there: Command
) -> None:
    server = serve("--host", f"lab2=ssh://lab2{sshd.program(there)},read-only", path=sshd.path)
    cookie = server.log_in(server.address())
    assert there.run("run", "-d", "--fraction", "0.5", "--", "sleep", "600").returncode == 0
    until(lambda: moment(server, cookie, "lab2").get("jobs"), "it is seen")
    until(lambda: there.job("run-1").get("state") == "running", "it runs")
    refused = post(server, cookie, "run-1", "lab2")
    assert (refused.status, b"shown, and not acted on" in refused.body) == (403, True)
    assert there.run("hold", "run-1").returncode != 0, "the daemon there has worked off what was before"
    assert there.job("run-1")["state"] == "running"
    assert servers_of(there)
    assert server.stop() == 130
    until(lambda: not servers_of(there), "the server there has ended")


def test_a_script_or_a_page_of_another_host_is_refused_and_data_is_not(
    serve: Serve, sshd: Sshd, tmp_path: Path
) -> None:
    server = serve("--host", f"lab2=ssh://lab2{stub_in(tmp_path / 'there')}", path=sshd.path)
    cookie = server.log_in(server.address())

    def asked(kind: str) -> int:
        return server.ask(f"/job/file?host=lab2&replica={kind}", cookie=cookie).status

    until(lambda: asked("application/json") == 200, "it is there")
    for kind in ("text/html", "text/javascript", "image/svg+xml", "application/xhtml+xml", "text/css", ""):
        assert asked(kind) == 502, kind
    assert asked("image/png") == 200


def test_what_another_host_sends_as_events_stays_one_event_of_it_each(serve: Serve, sshd: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    stub = stub_in(folder)
    events = folder / "events"
    events.write_bytes(b'data: {"number": 1}\rdata: {"number": 2}\r\rdata: {"forged": 1}\n\n')
    server = serve("--host", f"lab2=ssh://lab2{stub}", path=sshd.path)
    stream = Stream(server, server.log_in(server.address()), "/events?after=0&host=lab2")

    def heard(wanted: dict[str, Any]) -> list[dict[str, Any]]:
        found = []
        while wanted not in found:
            found.append(stream.next("at-lab2"))
        return found

    heard({})
    events.write_bytes(b"data: " + b"[" * 5000 + b"\n\n")
    heard({})
    events.write_text('data: {"number": 1, "text": "one\u2028line"}\n\n')
    assert {"number": 1} not in heard({"number": 1, "text": "one\u2028line"}), "what is no JSON is not passed on"
    assert not any(b"forged" in line for line in stream.lines), "nor as an event of this host"


def test_the_secret_for_metrics_opens_those_of_this_host_alone(
    serve: Serve, sshd: Sshd, there: Command, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    server = serve("--host", f"lab2=ssh://lab2{sshd.program(there)}", "--metrics-token", str(path), path=sshd.path)
    cookie = server.log_in(server.address())
    until(lambda: moment(server, cookie, "lab2").get("devices"), "it is seen")
    found = server.ask("/metrics?host=lab2", authorization=f"Bearer {path.read_text().strip()}")
    assert (found.status, found.body.count(b"gpusched_device_info{")) == (200, 2), "the one there has three"


def servers_of(command: Command) -> list[int]:
    """The processes of the page on that host."""
    found = []
    for pid in command.running():
        with suppress(OSError):
            if b"--socket" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


@pytest.mark.parametrize(
    "typed",
    [
        *("lab2", "lab2=lab2", "lab2=http://lab2", "=ssh://lab2", "lab2=ssh://", "lab2=ssh://-oProxyCommand=x"),
        *("lab2=ssh://lab2:port", "lab 2=ssh://lab2", "lab2=ssh://lab2,write", "lab2=ssh://me@-x", "a=ssh://b c"),
    ],
)
def test_what_names_no_host_is_refused(typed: str, tmp_path: Path) -> None:
    refused = Command(tmp_path).run("web", "--host", typed)
    assert refused.returncode == 2
    assert "names no host" in refused.stderr
    assert "lab2=ssh://" in refused.stderr


def test_two_hosts_of_one_name_are_refused(tmp_path: Path) -> None:
    refused = Command(tmp_path).run("web", "--host", "a=ssh://b", "--host", "a=ssh://c")
    assert refused.returncode == 2
    assert "two hosts are called a" in refused.stderr
