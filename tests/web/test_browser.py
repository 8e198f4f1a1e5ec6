"""The page in a real browser: a login, a job from its start to its end, a plan; both themes, a phone, axe-core.

Nothing is asked of anybody else, and the browser complains of nothing.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.cli.command import Command
from tests.patience import PATIENCE_S
from tests.stand_in.library import StandIn
from tests.web.server import Server
from tests.web.ssh import SSH, SSHD, Sshd, stub_in

CHROMIUM = shutil.which("chromium")
expect.set_options(timeout=1000 * PATIENCE_S)  # its own five seconds are few on a busy host
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


class Visit:
    """A browser on the page, and all that it complained of and asked for."""

    def __init__(self, browser: Browser, server: Server, scheme: str, width: int) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})  # type: ignore[arg-type]
        context.set_default_timeout(1000 * PATIENCE_S)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(server.address())

    def has_no_fault(self) -> None:
        """Nothing that axe-core calls serious or critical; it does not scroll sideways."""
        found = [
            f"{one['impact']}: {one['help']}: {[node['html'] for node in one['nodes']]}"
            for one in Axe().run(self.page).response["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert found == []
        width = self.page.viewport_size["width"] if self.page.viewport_size else 0
        assert self.page.evaluate("document.documentElement.scrollWidth") == width, "it does not scroll sideways"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 375)])
def test_a_job_is_seen_to_start_and_nothing_is_asked_of_others(
    serve: Callable[..., Server], browser: Browser, scheme: str, width: int
) -> None:
    server = serve()
    visit = Visit(browser, server, scheme, width)
    page = visit.page
    expect(page.locator("#gpus article")).to_have_count(2)
    assert page.url == f"http://127.0.0.1:{server.port}/", "the secret has left the address"
    expect(page.locator("#none")).to_be_visible()
    server.command.run("run", "-d", "--fraction", "0.5", "--name", "<b>bold</b>", "--", "sleep", "600")
    row = page.locator("#jobs tr", has_text="run-1")
    expect(row.locator(".state")).to_contain_text("running")
    expect(row).to_contain_text("<b>bold</b>")
    assert row.locator("b").count() == 0, "a name is text"
    expect(page.locator("#gpus .legend")).to_contain_text("run-1")
    assert "run-1 has" in (page.locator("#gpus svg.memory").first.get_attribute("aria-label") or "")
    page.locator("#find").fill("nothing of that name")
    expect(page.locator("#jobs tr")).to_have_count(0)
    page.locator("#find").fill("sleep 6")
    expect(row).to_be_visible()
    visit.has_no_fault()
    assert visit.complaints == []
    assert {url.split("/")[2] for url in visit.asked} == {f"127.0.0.1:{server.port}"}


def test_when_the_server_has_gone_the_page_has_what_was_seen_last_and_says_since_when(
    serve: Callable[..., Server], browser: Browser
) -> None:
    server = serve()
    page = Visit(browser, server, "light", 1200).page
    expect(page.locator("#gpus article")).to_have_count(2)
    server.stop()
    expect(page.locator("#summary")).to_contain_text("not connected since")
    expect(page.locator("#gpus article")).to_have_count(2)


PROGRAM = """
import json, os, sys, time
with open(os.environ["GPUSCHED_RUN_DIR"] + "/progress.jsonl", "a", buffering=1) as reports:
    for step in range(100_000):
        print(json.dumps({"time": time.time(), "step": step, "score": step / 10}), file=reports)
        print(f"step {step}", flush=True)
        time.sleep(0.2)
"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 375)])
def test_a_jobs_curve_grows_its_log_follows_and_it_is_stopped(
    serve: Callable[..., Server], browser: Browser, scheme: str, width: int, tmp_path: Path
) -> None:
    server = serve()
    visit = Visit(browser, server, scheme, width)
    page = visit.page
    (tmp_path / "train.py").write_text(PROGRAM)
    server.command.run("run", "-d", "--fraction", "0.5", "--", sys.executable, str(tmp_path / "train.py"))
    page.locator("#jobs a", has_text="run-1").click()
    expect(page.locator("#job-title")).to_have_text("run-1")
    expect(page.locator("#job-state")).to_have_text("running")
    chart = page.locator("#curves figure").first
    expect(chart.locator("figcaption")).to_contain_text("score: ")
    expect(chart.locator("canvas")).to_be_visible()
    before = chart.locator("figcaption").inner_text()
    expect(chart.locator("figcaption")).not_to_have_text(before)
    expect(page.locator("#log")).to_contain_text("step 9")
    expect(page.locator("#replicas tr")).to_contain_text("command.0")
    expect(page.locator("#files")).to_contain_text("progress.jsonl")
    visit.has_no_fault()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("dialog")).to_contain_text("Stop run-1?")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#job-state")).to_have_text("running")
    page.get_by_role("button", name="Stop").click()
    page.evaluate("location.hash = '#/'")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.locator("#jobs a", has_text="run-1").click()
    expect(page.locator("#job-state")).to_have_text("running")
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    page.locator("#confirm-yes").press("Enter")
    expect(page.locator("#job-state")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.get_by_role("button", name="Run again")).to_be_visible()
    expect(page.locator("#usage")).to_contain_text("GiB")
    visit.has_no_fault()
    page.go_back()
    expect(page.locator("#jobs tr", has_text="run-1")).to_contain_text("cancelled")
    assert visit.complaints == []
    assert {url.split("/")[2] for url in visit.asked} == {f"127.0.0.1:{server.port}"}


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1200), ("light", 375)])
def test_a_plan_follows_the_sliders_and_the_doctor_is_asked(
    serve: Callable[..., Server], browser: Browser, scheme: str, width: int
) -> None:
    server = serve()
    visit = Visit(browser, server, scheme, width)
    page = visit.page
    page.get_by_role("link", name="Plan").click()
    page.locator("#plan-machine").fill("p3.8xlarge")
    expect(page.locator("#plan-counts")).to_have_text("[3, 10, 10, 10] on p3.8xlarge")
    expect(page.locator("#plan-why li").first).to_be_visible()
    expect(page.locator("#plan-command")).to_have_text("gpusched plan --procs 32 --machine p3.8xlarge")
    visit.has_no_fault()
    page.locator("#plan-machine").fill("2x24GiB")
    expect(page.locator("#plan-counts")).to_contain_text("on 2x24GiB")
    page.locator("#plan-machine").fill("p3.8xlarge")
    slider = page.locator("#plan-procs")
    slider.press("ArrowRight")
    expect(page.locator("#plan-procs-text")).to_have_text("33")
    expect(page.locator("#plan-counts")).to_have_text("[1, 11, 11, 11] on p3.8xlarge")
    page.locator("#plan-actor").press("End")
    expect(page.locator("#plan-error")).to_be_visible()
    page.locator("#plan-actor").press("Home")
    expect(page.locator("#plan-error")).to_be_hidden()
    page.get_by_role("link", name="Doctor").click()
    expect(page.locator("#findings")).to_contain_text("driver")
    visit.has_no_fault()
    assert visit.complaints == []


def test_a_page_that_was_lost_for_a_while_has_the_log_and_the_jobs_again(
    serve: Callable[..., Server], browser: Browser
) -> None:
    server = serve()
    visit = Visit(browser, server, "light", 1200)
    page = visit.page
    expect(page.locator("#none")).to_be_visible()
    page.context.set_offline(True)
    server.command.run("run", "-d", "--fraction", "0.5", "--", "sleep", "600")
    page.context.set_offline(False)
    expect(page.locator("#jobs tr", has_text="run-1")).to_contain_text("running")


def hide(page: Page, *, hidden: bool) -> None:
    """Have the page believe that its tab is hidden, or seen again: without a window no browser hides one."""
    value = str(hidden).lower()
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {value} }})")
    page.evaluate("dispatchEvent(new Event('visibilitychange'))")


def test_many_tabs_of_one_browser_follow_one_after_the_other_and_each_has_all_when_it_is_seen(
    serve: Callable[..., Server], browser: Browser
) -> None:
    server = serve()
    visit = Visit(browser, server, "light", 1200)
    first = visit.page
    server.command.run("run", "-d", "--fraction", "0.5", "--", "sh", "-c", "echo begun; exec sleep 600")
    expect(first.locator("#jobs tr", has_text="run-1")).to_contain_text("running")
    for _ in range(8):  # a browser has six connections to a server
        tab = visit.page.context.new_page()
        tab.goto(f"http://127.0.0.1:{server.port}/#/job/run-1")
        expect(tab.locator("#log")).to_contain_text("begun")
        hide(tab, hidden=True)
    server.command.run("stop", "run-1")
    hide(tab, hidden=False)
    expect(tab.locator("#job-state")).to_have_text("cancelled")
    expect(tab.locator("#log")).to_contain_text("begun")
    expect(first.locator("#jobs tr", has_text="run-1")).to_contain_text("cancelled")


def test_how_busy_a_gpu_was_before_the_page_was_opened_is_beside_it(
    serve: Callable[..., Server], browser: Browser
) -> None:
    server = serve()
    visit = Visit(browser, server, "light", 1200)
    minutes = '{"every_s": 30, "age_s": 1, "busy": {"GPU-x": []}}'
    uuid = visit.page.locator("#gpus .name").first.get_attribute("title") or ""
    body = minutes.replace("GPU-x", uuid).replace("[]", str([50] * 120))
    visit.page.route("**/history?*", lambda route: route.fulfill(body=body, content_type="application/json"))
    visit.page.reload()
    picture = visit.page.locator("#gpus svg.sparkline").first
    expect(picture).to_have_attribute("aria-label", "busy in the last 59m30s: 50 % on average")


@pytest.mark.skipif(None in (SSH, SSHD), reason="sshd is not installed")
def test_two_hosts_are_on_one_page_and_what_is_there_is_watched_and_one_that_is_away_is_marked(
    serve: Callable[..., Server], browser: Browser, stand_in: StandIn, tmp_path: Path
) -> None:
    sshd = Sshd(tmp_path / "ssh")
    (tmp_path / "there").mkdir()
    host = stand_in.host("gpus 3\nset * util 90\n")
    there = Command(tmp_path / "there", {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")})
    try:
        server = serve("--host", f"lab2=ssh://lab2{sshd.program(there)},read-only", path=sshd.path)
        visit = Visit(browser, server, "light", 1200)
        page = visit.page
        machine = page.locator(".machine", has_text="lab2")
        expect(machine).to_contain_text("away since")
        sshd.start()
        expect(machine.locator("article")).to_have_count(3)
        expect(page.locator("#gpus article")).to_have_count(5)
        for command, text in ((there, "echo there; exec sleep 600"), (server.command, "echo here; exec sleep 600")):
            command.run("run", "-d", "--fraction", "0.5", "--", "sh", "-c", text)
        rows = page.locator("#jobs tr", has_text="run-1")
        expect(rows).to_have_count(2)
        expect(page.locator("#summary")).to_have_text("2 run, 0 wait")
        visit.has_no_fault()
        page.locator("#jobs tr", has_text="on lab2").get_by_role("link").click()
        expect(page.locator("#log")).to_contain_text("there")
        expect(page.locator("#job-facts")).to_contain_text("lab2")
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        page.go_back()
        page.locator("#jobs tr").filter(has_not_text="on lab2").get_by_role("link").click()
        expect(page.locator("#log")).to_contain_text("here")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        page.go_back()
        sshd.stop()
        expect(machine).to_contain_text("away since")
        expect(machine.locator("article")).to_have_count(3)
        visit.has_no_fault()
        assert {url.split("/")[2] for url in visit.asked} == {f"127.0.0.1:{server.port}"}
    finally:
        sshd.stop()
        there.end()


def test_what_has_the_focus_keeps_it_while_other_rows_change_and_while_its_own_does(
    serve: Callable[..., Server], browser: Browser, tmp_path: Path
) -> None:
    server = serve()
    page = Visit(browser, server, "light", 1200).page
    (tmp_path / "train.py").write_text(PROGRAM)
    for _ in range(2):
        server.command.run("run", "-d", "--fraction", "0.3", "--", sys.executable, str(tmp_path / "train.py"))
    server.command.run("run", "-d", "--hold", "--fraction", "0.3", "--", "true")
    score = page.locator("#jobs tr", has_text="run-1").locator(".number").nth(3)
    for job in ("run-3", "run-1"):  # one that is quiet, and one that changes each second
        page.locator("#jobs a", has_text=job).focus()
        for _ in range(3):
            before = score.inner_text()
            expect(score).not_to_have_text(before)
        assert page.evaluate("document.activeElement.textContent") == job
    page.goto(page.url + "#/job/run-1")
    file = page.locator("#files a", has_text="progress.jsonl")
    file.focus()
    before = page.locator("#files").inner_text()
    expect(page.locator("#files")).not_to_have_text(before)
    assert page.evaluate("document.activeElement.textContent") == "progress.jsonl"


def test_an_array_is_held_and_released_while_its_members_run(serve: Callable[..., Server], browser: Browser) -> None:
    server = serve()
    page = Visit(browser, server, "light", 1200).page
    server.command.run("sweep", "-d", "--array", "1-4", "--num-gpus", "1", "--", "sleep", "600")
    page.locator("#jobs a", has_text="run-1").click()
    page.get_by_role("button", name="Hold").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#job-state")).to_contain_text("held, 0 of 4 ended, 2 run")
    expect(page.get_by_role("button", name="Hold")).to_have_count(0)
    page.get_by_role("button", name="Release").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#job-state")).to_contain_text("running, 0 of 4")


MOMENT: dict[str, object] = {
    "number": 1,
    "host": "there",
    "user": "you",
    "problem": None,
    "devices": [],
    "order": ["run-1", "run-2"],
    "jobs": [
        {
            "id": "run-1",
            "name": None,
            "user": "you",
            "group": None,
            "what": "x",
            "state": "running",
            "text": "runs",
            "why": None,
            "members": None,
            "processes": 1,
            "running": 1,
            "devices": [0],
            "simulated": False,
            "memory": None,
            "created": 1,
            "started": 1,
            "ended": None,
            "score": None,
        }
    ],
}
BAD: tuple[dict[str, object], ...] = (
    {"devices": [None]},
    {"order": 1},
    {"jobs": [{"id": "run-1"}]},
    {"jobs": None},
    {"problem": {"toString": 1}},
)


def put(path: Path, text: str) -> None:
    """Write a file so that who reads it has the old one or the new one."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


@pytest.mark.skipif(None in (SSH, SSHD), reason="sshd is not installed")
def test_a_host_that_sends_what_cannot_be_shown_keeps_nothing_else_from_being_shown_and_is_shown_once_it_sends_well(
    serve: Callable[..., Server], browser: Browser, tmp_path: Path
) -> None:
    sshd = Sshd(tmp_path / "ssh")
    sshd.start()
    folder = tmp_path / "there"
    stub = stub_in(folder)
    put(folder / "history", json.dumps({"every_s": 30, "age_s": 0, "busy": {}}))
    put(folder / "moment", json.dumps(MOMENT))
    try:
        server = serve("--host", f"lab2=ssh://lab2{stub}", path=sshd.path)
        visit = Visit(browser, server, "light", 1200)
        page = visit.page
        machine = page.locator(".machine").nth(1)
        server.command.run("run", "-d", "--fraction", "0.5", "--", "sleep", "600")
        for number, bad in enumerate(BAD):
            put(folder / "moment", json.dumps(MOMENT | bad))
            put(folder / "events", f'data: {{"number": {2 * number + 3}, "jobs": []}}\n\n')
            expect(machine).to_contain_text("it sent what cannot be shown")
            expect(page.locator("#gpus article")).to_have_count(2)
            expect(page.locator("#summary")).to_have_text("1 run, 0 wait")
            put(folder / "moment", json.dumps(MOMENT | {"number": 2 * number + 2}))
            put(folder / "events", f'data: {{"number": {2 * number + 4}, "jobs": []}}\n\n')
            expect(page.locator("#jobs tr", has_text="on lab2")).to_have_count(1)
            expect(page.locator("#summary")).to_have_text("2 run, 0 wait")
        put(folder / "moment", json.dumps(MOMENT | {"number": 20, "error": "it hangs", "jobs": [{"id": "run-1"}]}))
        put(folder / "events", 'data: {"number": 20, "jobs": []}\n\n')
        expect(machine).to_contain_text("it hangs")
        whole = {"number": 21, "host": "there", "user": "you", "problem": None, "devices": [], "jobs": []}
        put(folder / "events", f"data: {json.dumps(whole)}\n\n")
        expect(machine).to_contain_text("it sent what cannot be shown")
        put(folder / "events", 'data: {"number": 22, "jobs": [], "away": {"since": 1, "why": {"toString": 1}}}\n\n')
        server.command.run("stop", "run-1")
        expect(page.locator("#summary")).to_have_text("0 run, 0 wait")
        assert visit.complaints == []
    finally:
        sshd.stop()
