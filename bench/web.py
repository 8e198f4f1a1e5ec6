"""What the page in the browser costs: 64 GPUs, 500 processes, 2,000 jobs, open pages. Run `python -m bench.web`.

The GPUs are tests/stand_in (NVIDIA's library answers without a device). Each page is a connection that reads all that
the server sends, as a browser does; what a browser does with it is not measured.
"""

import http.client
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from bench.host import Daemon, arguments, cpu_s, memory_mb, print_results, running_daemon, until
from gpusched.control.messages import Hold
from tests.stand_in.library import SIXTY_FOUR, StandIn

Result = tuple[str, float, str, str]
_PORT = 8479
_CHANGES = 40
_JOBS = 20
_SHOWN = 12


class Server:
    """`gpusched web`, and a login to it."""

    def __init__(self, daemon: Daemon) -> None:
        argv = [sys.executable, "-m", "gpusched", "web", "--port", str(_PORT)]
        self.process = subprocess.Popen(argv, env=daemon.environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None  # noqa: S101 (for the type checker)
        address = re.search(r"http://\S+", self.process.stdout.readline())
        if address is None:
            sys.exit("gpusched web printed no address")
        parts = urlsplit(address[0])
        self.cookie = self.key = ""
        headers = self.get(f"{parts.path}?{parts.query}")[1]
        self.cookie = headers["set-cookie"].partition(";")[0]
        self.key = headers["location"].partition("#key=")[2]

    def get(self, path: str) -> tuple[bytes, http.client.HTTPMessage]:
        """Ask for a path; return what came, as it came, and the headers."""
        connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=60)
        path = f"{path}?key={self.key}" if self.key else path
        connection.request("GET", path, headers={"Cookie": self.cookie, "Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return content, answer.headers


class OpenPage(threading.Thread):
    """A page that follows the events, and notes when each job was seen to change, and how much came.

    `asleep`: it asks for them and reads nothing.
    """

    def __init__(self, server: Server, *, asleep: bool = False) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, tuple[float, str]] = {}
        self.bytes = 0
        self._socket = socket.create_connection(("127.0.0.1", _PORT), 60)
        asked = f"GET /events?after=0&key={server.key} HTTP/1.1"
        request = f"{asked}\r\nHost: 127.0.0.1:{_PORT}\r\nCookie: {server.cookie}\r\n\r\n"
        self._socket.sendall(request.encode())
        if not asleep:
            self.start()

    def run(self) -> None:
        """Read until the end."""
        with suppress(OSError), self._socket.makefile("rb") as file:
            for line in file:
                self.bytes += len(line)
                if line.startswith(b"data: {"):
                    for job in json.loads(line[len(b"data: ") :])["jobs"]:
                        self.seen[job["id"]] = (time.perf_counter(), job["text"])

    def close(self) -> None:
        """Go away."""
        self._socket.close()


def cost(processes: dict[str, int], seconds: float) -> dict[str, float]:
    """Return how much of a core each process uses, in percent."""
    before = {name: cpu_s(pid) for name, pid in processes.items()}
    time.sleep(seconds)
    return {name: 100 * (cpu_s(pid) - before[name]) / seconds for name, pid in processes.items()}


def delays(daemon: Daemon, page: OpenPage) -> list[float]:
    """Hold and release jobs, each at another moment of a second; return how long after that a page has it, in ms."""
    found = []
    for number in range(_CHANGES):
        job, held = f"run-{number % _JOBS + 1}", number < _JOBS
        time.sleep(0.5 + number % 7 / 7)
        daemon.client.ask(Hold(ids=(job,), held=not held))
        began = time.perf_counter()
        wanted = "queued" if held else "held"
        until(lambda: page.seen.get(job, (0.0, ""))[1] == wanted, f"{job} is {wanted}", every_s=0.002)  # noqa: B023
        found.append(1000 * (page.seen[job][0] - began))
    return found


def asleep(daemon: Daemon, pages: int, seconds: float) -> list[Result]:
    """Return what a server has before and after pages read nothing, while the queue changes each second."""
    server = Server(daemon)
    pid = server.process.pid
    try:
        awake, sleeping = OpenPage(server), [OpenPage(server, asleep=True) for _ in range(pages)]
        time.sleep(5)
        before = memory_mb(pid)[0], _files(pid)
        on_the_way = []
        for number in range(round(seconds)):
            daemon.client.ask(Hold(ids=(f"run-{number % _JOBS + 1}",), held=number // _JOBS % 2 == 0))
            time.sleep(1)
            if number % (seconds // _SHOWN or 1) == 0:
                on_the_way.append((f"server: RSS after {number} s", memory_mb(pid)[0], "MB", ""))
        after = memory_mb(pid)[0], _files(pid)
        daemon.client.ask(Hold(ids=tuple(f"run-{number + 1}" for number in range(_JOBS)), held=True))
        time.sleep(5)
        late = delays(daemon, awake)
        for page in sleeping:
            page.close()
        until(lambda: _files(pid) <= after[1] - pages, "those that have gone are noticed")
    finally:
        server.process.terminate()
        server.process.wait(10)
    return [
        ("server: RSS before", before[0], "MB", ""),
        *on_the_way,
        ("server: RSS after", after[0], "MB", "as before"),
        ("server: open files before", before[1], "", ""),
        ("server: open files after", after[1], "", "as before"),
        ("a page that reads got, in all", awake.bytes / 1000, "KB", ""),
        ("a change is seen by it after (median)", statistics.median(late), "ms", "< 300"),
    ]


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def full_host(jobs: int) -> Iterator[Daemon]:
    """Give a daemon on a host with 64 GPUs, 500 processes of no job, and so many held jobs."""
    processes = "".join(f"process {number % 64} C {4_000_000 + number} 500\n" for number in range(500))
    with tempfile.TemporaryDirectory() as folder:
        host = StandIn(Path(folder)).host(SIXTY_FOUR + processes)
        with running_daemon(host.env) as daemon:
            code = f"import gpusched\nfor _ in range({jobs}): gpusched.run(['true'], fraction=0.9, hold=True)"
            subprocess.run([sys.executable, "-c", code], env=daemon.environ, check=True)
            yield daemon


def measured(daemon: Daemon, pages: int, seconds: float) -> list[Result]:
    """Return the figures of a server on that host."""
    alone = cost({"daemon": daemon.pid}, seconds / 2)
    server = Server(daemon)
    try:
        began = time.perf_counter()
        files = [
            server.get(path)[0]
            for path in (
                "/",
                "/page.css",
                "/page.js",
                "/draw.js",
                "/status.js",
                "/job.js",
                "/plan.js",
                "/doctor.js",
                "/hosts",
                "/moment",
                "/history",
            )
        ]
        first_s = time.perf_counter() - began
        opened = [OpenPage(server) for _ in range(pages)]
        time.sleep(5)
        used = cost({"server": server.process.pid, "daemon": daemon.pid}, seconds)
        late = delays(daemon, opened[0])
        rss, _ = memory_mb(server.process.pid)
        got = opened[0].bytes
        for page in opened:
            page.close()
    finally:
        server.process.terminate()
        server.process.wait(10)
    return [
        ("server: CPU, of one core", used["server"], "%", "< 25"),
        ("server: RSS", rss, "MB", "< 120"),
        ("daemon: CPU without the page, of one core", alone["daemon"], "%", ""),
        ("daemon: CPU more with it, of one core", used["daemon"] - alone["daemon"], "%", "< 2"),
        ("a change is seen after (median)", statistics.median(late), "ms", "< 300"),
        ("a change is seen after (slowest)", max(late), "ms", ""),
        ("the first page: all its requests", 1000 * first_s, "ms", "< 500"),
        ("the first page: bytes", sum(map(len, files)) / 1000, "KB", "< 200"),
        ("a page got, in all", got / 1000, "KB", ""),
    ]


def main() -> None:
    """Measure, and print what came out."""
    typed = arguments(
        __doc__,
        ("--seconds", 60, "how long the cost is measured"),
        ("--pages", 20, "how many pages are open"),
        ("--jobs", 2000, "how many jobs wait"),
        ("--asleep", 0, "instead: how many pages read nothing, beside one that does"),
    )
    with full_host(typed.jobs) as daemon:
        if typed.asleep:
            results = asleep(daemon, typed.asleep, typed.seconds)
        else:
            results = measured(daemon, typed.pages, typed.seconds)
    print_results(results, as_json=typed.json)


if __name__ == "__main__":
    main()
