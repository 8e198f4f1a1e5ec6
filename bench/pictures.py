"""The pictures of README.md and docs/web.md, of the real program: `python -m bench.pictures [NAME...]`.

The plan and the launch are what they are. For the status and the page the GPUs are tests/stand_in (a library that has
answers and no device), and how much memory each process uses is made up; jobs, shares and progress are real.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from bench.fresh import ROOT
from bench.terminal import Program, Terminal, animate, draw, image_of
from tests.cli.command import Command
from tests.stand_in.library import StandIn, StandInHost
from tests.web.ssh import Sshd

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from playwright.sync_api import Browser

__all__ = ["main"]

IMAGES: Final = ROOT / "docs" / "images"
_GPUSCHED: Final = (sys.executable, "-P", "-m", "gpusched")
_COLUMNS: Final = 106
_LEARNT_S: Final = 150.0
_PARTS: Final = (0.69, 0.79, 0.73, 0.81, 0.62, 0.66)
"""How much of its share each process is shown to use."""
_FOREIGN_MIB: Final = 2944
_TOUR_LINES: Final = 26
_TOUR_EVERY_S: Final = 3.0
_TOUR_FRAMES: Final = 40
_TOUR_READ_S: Final = 7.0
_TYPED: Final = 4
_TYPED_S: Final = 0.12
_PAGE: Final = 1120
_DRAWN_MS: Final = 4000
_ROOT_S_BROWSER: Final = ["--no-sandbox"] if os.geteuid() == 0 else []
_DEVICES: Final = """
gpus 4
set * used 0
set 0 util 91
set 0 temp 63
set 0 power 212000
set 1 util 64
set 1 temp 55
set 1 power 134000
set 2 util 58
set 2 temp 52
set 2 power 128000
set 3 util 61
set 3 temp 54
set 3 power 131000
"""


def main() -> None:
    """Draw those that are named, or all."""
    drawn: dict[str, Callable[[Command], None]] = {
        "plan": _plan,
        "launch": _launch,
        "tour": _tour,
        "status": _status,
        "web": _web,
    }
    parser = argparse.ArgumentParser(prog="python -m bench.pictures", description="draw the pictures of README.md")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which; default: {' '.join(drawn)}")
    names = parser.parse_args().names or list(drawn)
    if unknown := set(names) - set(drawn):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="ada-", ignore_cleanup_errors=True) as home:
            command = Command(Path(home), {"PYTHONPATH": str(ROOT)})
            try:
                drawn[name](command)
            finally:
                command.end()
        print(f"{name}: drawn in {IMAGES}")


def _plan(command: Command) -> None:
    _draw("plan", ("plan", "--procs", "32", "--machine", "p3.8xlarge"), command.env)


def _launch(command: Command) -> None:
    words = ("launch", "snake", "--procs", "4", "--minutes", "3", "--watch")
    _draw("launch", words, command.env, lines=30, seconds=_LEARNT_S)


def _tour(command: Command) -> None:
    """A job that learns, twelve times as fast; then what waits, and why."""
    (command.home / "train.py").write_text("import time; time.sleep(900)")
    frames: list[tuple[Picture, float]] = []
    terminal = Terminal(_COLUMNS, _TOUR_LINES)
    with _host(command):
        _type("gpusched launch snake --procs 4 --watch", terminal, frames)
        with Program((*_GPUSCHED, "launch", "snake", "--procs", "4", "--watch"), command.env, terminal) as program:
            for _ in range(_TOUR_FRAMES):
                program.follow(_TOUR_EVERY_S)
                frames.append((image_of(terminal, _TOUR_LINES), _TOUR_EVERY_S / 12))
        for words in (
            ("--num-gpus", "3", "--name", "train", "--time-limit", "2h"),
            ("--num-gpus", "2", "--name", "big", "--time-limit", "1h"),
            ("--fraction", "0.4", "--name", "evaluate", "--after", "train"),
        ):
            command.run("run", "-d", *words, "--", "python", "train.py", cwd=command.home)
        terminal = Terminal(_COLUMNS, _TOUR_LINES)
        _type("gpusched ps --why", terminal, frames)
        with Program((*_GPUSCHED, "ps", "--why"), command.env, terminal) as program:
            program.follow(_TOUR_EVERY_S)
            frames.append((image_of(terminal, _TOUR_LINES), _TOUR_READ_S))
    animate(frames, IMAGES / "tour.gif")


def _type(line: str, terminal: Terminal, frames: "list[tuple[Picture, float]]") -> None:
    """Type a command on the terminal, and press Enter."""
    terminal.feed("\x1b[92m$\x1b[0m ")
    for begin in range(0, len(line), _TYPED):
        terminal.feed(line[begin : begin + _TYPED])
        frames.append((image_of(terminal, _TOUR_LINES), _TYPED_S))
    terminal.feed("\r\n")


def _status(command: Command) -> None:
    with _busy_host(command):
        _draw("status", ("status",), command.env)


def _web(command: Command) -> None:
    """The page: GPUs and jobs, a job, and a plan in the dark."""
    from playwright.sync_api import sync_playwright

    with _busy_host(command), _lab2(command) as words, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ROOT_S_BROWSER)
        try:
            _photograph(command, browser, (), {"web": "", "web-job": "job/snake-1", "web-plan": "plan"})
            _photograph(command, browser, words, {"web-hosts": ""})
        finally:
            browser.close()


def _photograph(command: Command, browser: "Browser", words: Sequence[str], views: Mapping[str, str]) -> None:
    """Draw these views of the page, by the names of the pictures; the plan in the dark."""
    server = command.start("web", "--port", "8478", *words)
    try:
        for name, view in views.items():
            assert server.stdout is not None  # noqa: S101 (for the type checker)
            address = server.stdout.readline().split()[-1]
            scheme: Literal["dark", "light"] = "dark" if view == "plan" else "light"
            context = browser.new_context(color_scheme=scheme, viewport={"width": _PAGE, "height": 640})
            page = context.new_page()
            page.goto(address)
            page.goto(f"{address.partition('?')[0]}#/{view}")
            if view == "plan":
                page.locator("#plan-machine").fill("p3.8xlarge")
            page.wait_for_timeout(_DRAWN_MS)
            page.screenshot(path=IMAGES / f"{name}.png", full_page=not view.startswith("job"))
            context.close()
    finally:
        server.kill()
        server.communicate()


@contextmanager
def _lab2(command: Command) -> Iterator[list[str]]:
    """Have a second host, which ssh of `command` reaches, and a third that is off; yield the options that name them."""
    home = command.home / "lab2"
    home.mkdir()
    other = Command(home, {"PYTHONPATH": str(ROOT)})
    sshd = Sshd(command.home / "ssh")
    command.env["PATH"] = f"{sshd.path}:{os.environ['PATH']}"
    with _host(other):
        other.run("run", "-d", "--num-gpus", "2", "--name", "pretrain", "--", "sleep", "600")
        sshd.start()
        try:
            yield ["--host", f"lab2=ssh://lab2{sshd.program(other)}", "--host", "lab3=ssh://lab3"]
        finally:
            sshd.stop()
            other.end()


@contextmanager
def _host(command: Command) -> Iterator[StandInHost]:
    """Have a host with four GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        host = StandIn(Path(folder)).host(_DEVICES)
        command.env |= {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")}
        yield host
        command.run("stop", "--all", "--kill")


@contextmanager
def _busy_host(command: Command) -> Iterator[None]:
    """Have a host with four GPUs, snake that learns, a command on two of them, and a process of no job."""
    with _host(command) as host:
        foreign = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)  # train_resnet.py"])
        try:
            others = f"{_DEVICES}set 3 used {_FOREIGN_MIB}\nprocess 3 C {foreign.pid} {_FOREIGN_MIB}\n"
            host.change(others)
            command.run("launch", "-d", "snake", "--procs", "5", "--minutes", "10", cwd=command.home)  # it is shown
            command.run("run", "-d", "--num-gpus", "2", "--name", "eval", "--", "sleep", "600", cwd=command.home)
            time.sleep(_LEARNT_S)
            host.change(others + _usage(json.loads(command.run("status", "--json").stdout)))
            yield
        finally:
            foreign.kill()
            foreign.wait()


def _usage(status: Mapping[str, Any]) -> str:
    """Return the lines of a scenario in which each replica uses a part of its share."""
    replicas = [each for job in status["jobs"] for each in job["replicas"] if each["role"] != "command" and each["pid"]]
    used = dict.fromkeys(range(4), 0) | {3: _FOREIGN_MIB}
    lines = []
    for replica, part in zip(replicas, _PARTS, strict=True):
        mib = round(part * replica["limit_mib"])
        used[replica["device_index"]] += mib
        lines.append(f"process {replica['device_index']} C {replica['pid']} {mib}")
    return "\n".join([*lines, *(f"set {gpu} used {mib}" for gpu, mib in used.items()), ""])


def _draw(name: str, words: Sequence[str], env: Mapping[str, str], *, lines: int = 60, seconds: float = 60) -> None:
    with Program((*_GPUSCHED, *words), env, Terminal(_COLUMNS, lines)) as program:
        program.follow(seconds)
        draw(program.terminal, IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
