"""The running server, as a browser, Prometheus and others on the host meet it."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusched.web.answers import EMPTY_PATHS
from tests.cli.command import Command
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn
from tests.web.server import Answer, Server, listens
from tests.web.stream import Stream

Serve = Callable[..., Server]
PATHS = [
    "/",
    "/page.js",
    "/events",
    "/moment",
    "/job/events?id=run-1",
    "/history",
    "/job/file?id=run-1&name=x",
    "/job/members?id=run-1",
    "/job/usage?id=run-1",
    "/plan",
    "/choices",
    "/doctor",
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


def test_the_cookie_which_other_ports_get_too_opens_nothing_without_the_key_of_the_page(serve: Serve) -> None:
    server = serve()
    cookie, other = server.log_in(server.address()), server.log_in(server.address())
    for path in PATHS:
        if path not in EMPTY_PATHS:
            found = server.ask(f"{path}{'&' if '?' in path else '?'}x=", cookie=f"{cookie};")  # as it is sent elsewhere
            assert found.status == 401, path
    key = server.keyed("", other).removeprefix("?")
    assert server.ask(f"/moment?{key}", cookie=f"{cookie};").status == 401, "of another login"
    assert server.ask("/moment", cookie=cookie).status == 200
    assert server.ask("/", cookie=f"{cookie};").status == 200, "the page without anything on it"


def test_who_is_logged_in_may_open_an_old_address_and_a_preview_uses_none(serve: Serve) -> None:
    server = serve()
    old = server.address().partition(str(server.port))[2]
    assert server.ask(old, "HEAD").status == 401
    cookie = server.log_in(old)
    again = server.ask(old, cookie=f"{cookie};")
    assert (again.status, again.headers["location"]) == (303, "/")
    assert server.ask(old).status == 401


def test_where_no_address_can_be_shown_any_more_who_has_the_last_one_is_let_in(serve: Serve) -> None:
    server = serve()
    address = server.address()
    server.close_output()
    cookie = server.log_in(address)
    assert server.ask("/moment", cookie=cookie).status == 200


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
        f"localhost:{server.port}",
        f"[::1]:{server.port}",
        "",
    ):
        assert server.ask("/", cookie=cookie, host=host).status in (400, 421), host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_nothing_is_written_by_any_method(serve: Serve, method: str) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    assert server.ask("/", method, cookie=cookie).status in (400, 404, 405)


@pytest.mark.parametrize("path", [path for path in PATHS if "passwd" in path or "static" in path])
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


def test_as_a_service_the_address_is_in_a_file_for_this_user_alone_and_nothing_is_printed(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "address"
    server = serve("--address-file", str(path))
    until(path.exists, "it serves")
    first = path.read_text().strip()
    assert oct(path.stat().st_mode)[-3:] == "600"
    server.log_in(first)
    until(lambda: path.read_text().strip() != first, "another one for the next login")
    assert server.ask("/", cookie=server.log_in(path.read_text().strip())).status == 200
    assert server.stop() == 130
    assert server.output() == ""
    refused = server.command.run("web", "--address-file", str(tmp_path / "none" / "address"))
    assert refused.returncode == 5
    assert "No such file or directory" in refused.stderr


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
    assert listens(server.port) == ["0100007F"]


class Page:
    """What a page has of the status: the moment, and what has changed since."""

    def __init__(self, server: Server, cookie: str) -> None:
        self._server, self._cookie = server, cookie
        self.moment = self._ask()
        self._stream = Stream(server, cookie, f"/events?after={self.moment['number']}")

    def _ask(self) -> dict[str, Any]:
        return dict(json.loads(self._server.ask("/moment", cookie=self._cookie).body))

    def follow(self) -> dict[str, Any]:
        """Take the next change; return the moment."""
        part = self._stream.next()
        if part.get("number") != self.moment["number"] + 1:
            self.moment = self._ask()
            return self.moment
        jobs = {job["id"]: job for job in (*self.moment["jobs"], *part.pop("jobs"))}
        self.moment |= part
        self.moment["jobs"] = [jobs[name] for name in self.moment["order"]]
        return self.moment

    def close(self) -> None:
        self._stream.close()


def test_the_page_follows_what_happens_on_the_host(serve: Serve) -> None:
    server = serve()
    page = Page(server, server.log_in(server.address()))
    assert [one["busy"] for one in page.moment["devices"]] == [0, 37]
    assert page.moment["jobs"] == []
    queued = server.command.run("run", "-d", "--fraction", "0.5", "--name", "<b>it</b>", "--", "sleep", "600")
    assert queued.returncode == 0, queued.stderr
    until(lambda: [job["state"] for job in page.follow()["jobs"]] == ["running"], "the page has the job")
    parts = {part["job"]: part["mib"] for part in page.moment["devices"][0]["parts"]}
    assert parts["run-1"] > 7000
    page.close()


def test_a_reader_that_sleeps_keeps_no_other_from_reading(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    asleep, awake = [Page(server, cookie) for _ in range(30)], Page(server, cookie)
    for busy in (10, 20, 30):
        server.host.change(f"gpus 2\nset 1 util {busy}\n")
        until(lambda: awake.follow()["devices"][1]["busy"] == busy, "it follows")  # noqa: B023
    assert server.ask("/page.js", cookie=cookie).status == 200
    for page in asleep:
        until(lambda: page.follow()["devices"][1]["busy"] == 30, "it wakes up and sees what is now")  # noqa: B023
    assert server.stop() == 130, "also while pages are open"
    assert "rror" not in server.output()
    for page in (*asleep, awake):
        page.close()


def test_an_array_is_one_row_whether_it_runs_or_has_ended(serve: Serve) -> None:
    server = serve()
    page = Page(server, server.log_in(server.address()))
    queued = server.command.run("sweep", "-d", "--param", "n=1..3", "--", "sh", "-c", "exit $(({n} % 2))")
    assert queued.returncode == 0, queued.stderr
    server.command.run("wait", "run-1")

    def rows() -> list[tuple[str, str]]:
        return [(job["id"], job["text"]) for job in page.follow()["jobs"]]

    until(lambda: rows() == [("run-1", "failed, 3 of 3 ended, 2 failed")], "one row of three members")


PROGRAM = """
import json, os, pathlib, sys, time
here = pathlib.Path(os.environ["GPUSCHED_RUN_DIR"])
print("first <b>line</b>", flush=True)
with open(here / "progress.jsonl", "a") as reports:
    for step in range(3):
        print(json.dumps({"time": time.time(), "step": step, "score": step / 2, "note": f"note {step}"}), file=reports)
(here / "plots").mkdir()
(here / "plots" / "a.png").write_bytes(b"no picture, but its name is one")
(here / "page.html").write_text("<script>alert(1)</script>")
(here / "secret").symlink_to(sys.argv[1])
(here / "out").symlink_to("/")
os.mkfifo(here / "pipe")
"""


def test_the_page_of_a_job_has_its_reports_its_log_its_processes_and_its_files(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    (tmp_path / "secret").write_text("mine")
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "secret")]
    assert server.command.run("run", "-d", "--fraction", "0.5", "--", *program).returncode == 0
    assert server.command.run("wait", "run-1").returncode == 0, server.command.run("logs", "run-1").stdout
    events = list(Stream(server, cookie, "/job/events?id=run-1").until_over())
    seen = {name: value for event in events for name, value in event.items()}
    assert seen["job"]["state"] == "succeeded"
    assert seen["curves"]["numbers"] == {"step": [0.0, 1.0, 2.0], "score": [0.0, 0.5, 1.0]}
    assert seen["notes"] == ["note 0", "note 1", "note 2"]
    assert [one["exit"] for one in seen["replicas"]] == ["completed"]
    files = {one["name"]: one["picture"] for one in seen["files"]}
    assert files == {"progress.jsonl": False, "page.html": False, "plots/a.png": True}
    assert [line for event in events for line in event.get("lines", [])][-1] == "first <b>line</b>"

    picture = server.ask("/job/file?id=run-1&name=plots/a.png", cookie=cookie)
    assert (picture.status, picture.headers["content-type"]) == (200, "image/png")
    page = server.ask("/job/file?id=run-1&name=page.html", cookie=cookie)
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"] == "attachment"
    for name in (
        *(
            "secret",
            "out/etc/passwd",
            "pipe",
            "..",
            "../run-1/page.html",
            "/etc/passwd",
            "plots",
            "",
            "a%00b",
            "plots//a.png",
        ),
        *("spec.json", "status.json", "environ", "logs/command.0.log", "keys/x", "./page.html"),
    ):
        refused = server.ask(f"/job/file?id=run-1&name={name}", cookie=cookie)
        assert refused.status in (400, 404), name
        assert b"error" in refused.body
    for job in ("..", "../..", "run-9", "*", "run-1,run-2", "", "a/b"):
        assert server.ask(f"/job/file?id={job}&name=page.html", cookie=cookie).status == 404, job


def test_the_page_of_a_job_that_has_ended_has_all_that_it_reported_though_it_is_read_in_parts(serve: Serve) -> None:
    server = serve()
    reports = """{ yes '{"time": 1, "step": 1}' | head -200000; echo '{"time": 2, "note": "the last"}'; }"""
    program = f'{reports} > "$GPUSCHED_RUN_DIR/progress.jsonl"'
    assert server.command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", program).returncode == 0
    assert server.command.run("wait", "run-1").returncode == 0
    events = list(Stream(server, server.log_in(server.address()), "/job/events?id=run-1").until_over())
    assert sum("curves" in event for event in events) > 1
    assert ["the last"] in [event.get("notes") for event in events]


def test_a_log_is_followed_while_it_grows_also_a_line_without_an_end(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    go = tmp_path / "go"
    script = (
        f"printf 'half'; until [ -e {go} ]; do sleep 0.05; done; echo ' and whole'; echo same; sleep 1.5; echo same"
    )
    assert server.command.run("run", "-d", "--fraction", "0.5", "--", "sh", "-c", script).returncode == 0
    stream = Stream(server, cookie, "/job/events?id=run-1&replica=command.0")
    until(lambda: stream.next().get("unfinished") == ["half"], "what has no end yet is seen")
    go.touch()
    lines = [line for event in stream.until_over() for line in event.get("lines", [])]
    assert lines == ["half and whole", "same", "same"]


def test_a_file_whose_name_is_no_text_is_left_out_and_the_page_goes_on(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    script = "cd $GPUSCHED_RUN_DIR; touch good.txt; touch \"$(printf 'caf\\351.txt')\""
    assert server.command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", script).returncode == 0
    assert server.command.run("wait", "run-1").returncode == 0
    events = Stream(server, cookie, "/job/events?id=run-1").until_over()
    assert [one["name"] for event in events for one in event.get("files", [])] == ["good.txt"]


def test_of_a_progress_bar_the_last_part_alone_is_sent(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    script = "i=0; while [ $i -lt 20000 ]; do printf '\\r%05d of 20000' $i; i=$((i+1)); done; exec sleep 600"
    assert server.command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", script).returncode == 0
    stream = Stream(server, cookie, "/job/events?id=run-1")
    lengths: list[int] = []

    def at_the_end() -> bool:
        lines = stream.next().get("unfinished", [])
        lengths.extend(map(len, lines))
        return any("19999 of" in line for line in lines)

    until(at_the_end, "it has come to its end")
    assert max(lengths) < 100


def test_a_large_result_is_refused_and_streams_have_a_bound(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    script = "cd $GPUSCHED_RUN_DIR; truncate -s 65M large; truncate -s 3M small"
    assert server.command.run("run", "-d", "--num-gpus", "0", "--", "sh", "-c", script).returncode == 0
    assert server.command.run("wait", "run-1").returncode == 0
    refused = server.ask("/job/file?id=run-1&name=large", cookie=cookie)
    assert (refused.status, b"more than 64 MiB" in refused.body) == (404, True)
    assert len(server.ask("/job/file?id=run-1&name=small", cookie=cookie).body) == 3 << 20
    streams = [Stream(server, cookie) for _ in range(100)]
    for stream in streams:
        stream.next()
    assert server.ask("/events", cookie=cookie).status == 503
    for stream in streams:
        stream.close()
    until(lambda: server.ask("/events", cookie=cookie).status == 200, "there is room again")


@pytest.mark.slow
def test_connections_that_ask_for_nothing_are_closed_and_then_there_is_room(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    silent = [socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) for _ in range(305)]
    for number, one in enumerate(silent):
        one.sendall(b"GET / HTTP/1.1\r\nHost: " if number % 2 else b"")  # half of them begin a request
    until(lambda: server.ask("/moment", cookie=cookie).status == 200, "they were closed")
    for one in silent:
        assert one.recv(1000)[:12] in (b"", b"HTTP/1.1 503")
        one.close()


def test_a_click_is_for_the_job_of_that_id_and_not_for_another_one_of_that_name(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    for name in ("a", "run-1"):
        words = ("run", "-d", "--hold", "--fraction", "0.5", "--name", name, "--", "true")
        assert server.command.run(*words).returncode == 0
    server.command.run("stop", "a")
    assert server.command.run("rm", "a").returncode == 0
    for name in ("run-1", "a"):
        assert do(server, cookie, {"do": "kill", "job": name}).status == 404, name
    assert json.loads(server.command.run("ps", "--json", "run-2").stdout)["jobs"][0]["state"] == "queued"


def test_a_job_that_there_is_not_and_one_that_has_no_log_are_a_sentence(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    (event,) = Stream(server, cookie, "/job/events?id=run-9").until_over()
    assert "run-9" in event["error"]
    queued = server.command.run("run", "-d", "--hold", "--fraction", "0.5", "--", "true")
    assert queued.returncode == 0, queued.stderr
    assert server.command.run("stop", "run-1").returncode == 0
    (event,) = Stream(server, cookie, "/job/events?id=run-1").until_over()
    assert event["log_problem"].startswith("run-1 has no log")
    (event,) = Stream(server, cookie, "/job/events?id=run-1&replica=actor.7").until_over()
    assert event["job"]["state"] == "cancelled", "a process that there is not is no error of the page"


def test_the_members_of_an_array_are_a_table_of_parameters_and_scores(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    report = 'echo "{\\"time\\": 1, \\"score\\": {n}}" >> $GPUSCHED_RUN_DIR/progress.jsonl'
    queued = server.command.run("sweep", "-d", "--param", "n=1..3", "--", "sh", "-c", report)
    assert queued.returncode == 0, queued.stderr
    assert server.command.run("wait", "run-1").returncode == 0
    found = json.loads(server.ask("/job/members?id=run-1", cookie=cookie).body)
    assert found["names"] == ["n"]
    assert [(one["id"], one["parameters"], one["score"]) for one in found["members"]] == [
        (f"run-1[{number}]", {"n": str(number + 1)}, number + 1) for number in (2, 1, 0)
    ]
    assert server.ask("/job/members?id=run-1[0]", cookie=cookie).status == 400
    used = json.loads(server.ask("/job/usage?id=run-1", cookie=cookie).body)
    assert (used["titles"], len(used["lines"])) == (["runs", "given", "cpus", "time"], 1)
    assert used["lines"][0][0] == "3", "an array is one line"


def test_what_a_job_used_is_beside_what_it_was_given(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    assert server.command.run("run", "-d", "--memory", "6GiB", "--", "sleep", "600").returncode == 0
    until(lambda: server.command.job("run-1").get("state") == "running", "it runs")
    (replica,) = server.command.job("run-1")["replicas"]
    server.host.change(f"gpus 2\nset 1 util 37\nprocess 0 C {replica['pid']} 1900\nevent 0 xid 43\n")

    def used() -> dict[str, str]:
        found = json.loads(server.ask("/job/usage?id=run-1", cookie=cookie).body)
        return dict(zip(found["titles"], *found["lines"], strict=True)) if found.get("lines") else {}

    until(lambda: used().get("used") == "1.9 GiB", "it was polled")
    assert (used()["given"], used()["of it"]) == ("6.4 GiB", "29 %")
    assert server.ask("/job/usage?id=run-9", cookie=cookie).status == 404


def test_a_plan_is_tried_and_what_does_not_fit_or_is_no_choice_is_a_sentence(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    choices = json.loads(server.ask("/choices", cookie=cookie).body)
    assert "p3.8xlarge" in choices["machines"]
    assert "snake" in choices["workloads"]

    def planned(asked: str) -> dict[str, Any]:
        answer = server.ask(f"/plan?{asked}", cookie=cookie)
        assert answer.status == 200
        return dict(json.loads(answer.body))

    found = planned("procs=32&machine=p3.8xlarge")
    assert found["counts"] == [3, 10, 10, 10]
    for device in found["devices"]:
        shares = sum(role["count"] * role["share"] for role in device["roles"])
        assert shares + sum(device["kept"].values()) == device["total"]
    assert len(planned("procs=2")["counts"]) == 2, "this host"
    assert len(planned("procs=2&machine=4x16GiB")["counts"]) == 4, "one that is described"
    (tmp_path / "workload.toml").write_text("no workload")
    for asked in (
        "procs=32&actor_memory=9GiB",
        "procs=none",
        f"workload={tmp_path}/workload.toml",
        "machine=/etc/passwd",
        "machine=1000x16GiB",
    ):
        refused = planned(asked)
        assert refused["error"], asked
        assert "no workload" not in refused["error"]


def test_a_machine_that_is_not_here_is_shown_with_the_jobs_that_run_on_it(serve: Serve) -> None:
    server = serve("--machine", "3x24GiB")
    cookie = server.log_in(server.address())
    started = server.command.run("run", "-d", "--machine", "3x24GiB", "--fraction", "0.5", "--", "sleep", "600")
    assert started.returncode == 0, started.stderr

    def parts() -> list[list[str]]:
        found = json.loads(server.ask("/moment", cookie=cookie).body)
        return [[part["job"] for part in device["parts"] if part["job"]] for device in found["devices"]]

    until(lambda: sorted(parts()) == [[], [], ["run-1"]], "its share is on one of three devices")


def test_without_a_gpu_the_page_names_the_way_to_the_simulated_ones(tmp_path: Path, stand_in: StandIn) -> None:
    server = Server(tmp_path, stand_in.host("gpus 0\n"))
    try:
        cookie = server.log_in(server.address())
        assert json.loads(server.ask("/moment", cookie=cookie).body)["none"] == "no GPU"
    finally:
        server.end()
    (tmp_path / "config.toml").write_text('default_machine = "2x24GiB"')
    server = Server(tmp_path, stand_in.host("gpus 0\n"), GPUSCHED_CONFIG=str(tmp_path / "config.toml"))
    try:
        cookie = server.log_in(server.address())
        none = json.loads(server.ask("/moment", cookie=cookie).body)["none"]
        assert none.endswith("gpusched web --machine 2x24GiB")
    finally:
        server.end()


def do(server: Server, cookie: str, action: dict[str, Any] | str, **headers: str) -> Answer:
    body = action if isinstance(action, str) else json.dumps(action)
    given = {"cookie": cookie, "content_type": "application/json", "origin": f"http://127.0.0.1:{server.port}"}
    return server.ask("/do", "POST", body=body, **given | headers)


def test_jobs_are_held_released_moved_up_stopped_and_run_again(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    assert server.command.run("run", "-d", "--hold", "--fraction", "0.5", "--", "sleep", "600").returncode == 0

    def job(name: str = "run-1") -> dict[str, Any]:
        return dict(json.loads(server.command.run("ps", "--json", name).stdout)["jobs"][0])

    assert do(server, cookie, {"do": "priority", "job": "run-1", "value": 7}).status == 200
    assert job()["priority"] == 7
    assert do(server, cookie, {"do": "release", "job": "run-1"}).status == 200
    until(lambda: job()["state"] == "running", "it runs")
    done = do(server, cookie, {"do": "stop", "job": "run-1"})
    assert (done.status, b"run-1" in done.body) == (200, True)
    until(lambda: job()["state"] == "cancelled", "it was stopped")
    assert b"run-2" in do(server, cookie, {"do": "rerun", "job": "run-1"}).body
    until(lambda: job("run-2")["state"] == "running", "it runs again")
    assert do(server, cookie, {"do": "kill", "job": "run-2"}).status == 200
    until(lambda: job("run-2")["state"] == "cancelled", "it was killed")
    assert do(server, cookie, {"do": "hold", "job": "run-2"}).status == 400, "it has ended"


def test_a_page_elsewhere_changes_nothing_and_neither_does_what_is_no_action(serve: Serve) -> None:
    server = serve()
    cookie = server.log_in(server.address())
    assert server.command.run("run", "-d", "--fraction", "0.5", "--", "sleep", "600").returncode == 0
    stop = {"do": "stop", "job": "run-1"}
    here = f"127.0.0.1:{server.port}"
    assert do(server, "", stop).status == 401
    assert do(server, cookie, stop, origin="http://evil.example").status == 403
    assert do(server, cookie, stop, origin="null").status == 403
    assert do(server, cookie, stop, host="evil.example").status == 421
    assert do(server, cookie, stop, content_type="text/plain").status == 415
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        assert server.ask("/do", method, cookie=cookie, origin=f"http://{here}").status == 405, method
    assert server.ask("/do", "POST", cookie=cookie, content_type="application/json").status == 403, "no Origin"
    for wrong in (
        "",
        "[]",
        "{}",
        '{"do": "stop"}',
        '{"do": "x", "job": "run-1"}',
        '{"do": "stop", "job": "*"}',
        "9" * 9000,
    ):
        assert do(server, cookie, wrong).status in (400, 413), wrong
    assert do(server, cookie, {"do": "priority", "job": "run-1", "value": "high"}).status == 400
    assert do(server, cookie, {"do": "priority", "job": "run-1"}).status == 400
    assert do(server, cookie, {"do": "stop", "job": "run-9"}).status == 404
    assert json.loads(server.command.run("ps", "--json").stdout)["jobs"][0]["state"] in ("starting", "running")


def test_without_the_extra_it_is_said_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['starlette'] = None; from gpusched.cli.main import main; sys.exit(main(['web']))"
    env = Command(tmp_path).env
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert refused.returncode == 5
    assert "the page needs starlette, which is not installed" in refused.stderr
    assert "pip install '.[web]'" in refused.stderr
