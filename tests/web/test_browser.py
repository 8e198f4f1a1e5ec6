"""The page in a real browser: a login, a job that starts, both themes, a phone; nothing is asked of anybody else."""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.patience import PATIENCE_S
from tests.web.server import Server

CHROMIUM = shutil.which("chromium")
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


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 375)])
def test_a_job_is_seen_to_start_and_nothing_is_asked_of_others(
    serve: Callable[..., Server], browser: Browser, scheme: str, width: int
) -> None:
    server = serve()
    visit = Visit(browser, server, scheme, width)
    page, patience = visit.page, 1000 * PATIENCE_S
    expect(page.locator("#gpus article")).to_have_count(2, timeout=patience)
    assert page.url == f"http://127.0.0.1:{server.port}/", "the secret has left the address"
    expect(page.locator("#none")).to_be_visible()
    server.command.run("run", "-d", "--fraction", "0.5", "--name", "<b>bold</b>", "--", "sleep", "600")
    row = page.locator("#jobs tr", has_text="run-1")
    expect(row.locator(".state")).to_contain_text("running", timeout=patience)
    expect(row).to_contain_text("<b>bold</b>")
    assert row.locator("b").count() == 0, "a name is text"
    expect(page.locator("#legend")).to_contain_text("run-1")
    assert "run-1 has" in (page.locator("#gpus svg").first.get_attribute("aria-label") or "")
    page.locator("#find").fill("nothing of that name")
    expect(page.locator("#jobs tr")).to_have_count(0)
    page.locator("#find").fill("sleep 6")
    expect(row).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width, "it does not scroll sideways"
    assert visit.complaints == []
    assert {url.split("/")[2] for url in visit.asked} == {f"127.0.0.1:{server.port}"}


def test_when_the_server_has_gone_the_page_has_what_was_seen_last_and_says_since_when(
    serve: Callable[..., Server], browser: Browser
) -> None:
    server = serve()
    page = Visit(browser, server, "light", 1200).page
    expect(page.locator("#gpus article")).to_have_count(2, timeout=1000 * PATIENCE_S)
    server.stop()
    expect(page.locator("#summary")).to_contain_text("not connected since", timeout=1000 * PATIENCE_S)
    expect(page.locator("#gpus article")).to_have_count(2)
