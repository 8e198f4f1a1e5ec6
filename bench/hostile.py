"""How long commands take where jobs put odd things in the place of their files. Run `python -m bench.hostile`.

For each kind of thing (tests/odd_files.py: pipes, sockets, devices, links to /dev/zero, 10 GB of nothing, directories,
files of mode 000) one job for each file has it there, one in the place of all of them, and one is left alone. As root
the files of mode 000 are another user's, as root could read them.
"""

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.cli.command import Command
from tests.daemon.test_hostile_files import ALL, FILES, NONE, daemon_pid, spoil, states, submitted
from tests.daemon.users import User, space_for_all
from tests.odd_files import KINDS
from tests.patience import until
from tests.supervisor.leasing import NOBODY

PROMISED_S: Final = 2.0
READING: Final = (("ps",), ("ps", "--all", "--json"), ("status",), ("status", "--json"), ("doctor",))
KILLED: Final = ("status.json", "orders.jsonl", ALL)
STUBBORN: Final = (
    *("run", "-d", "--json", "--num-gpus", "0", "--"),
    *("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"),
)
OF_ONE_JOB: Final = (("ps",), ("logs", "-n", "2"), ("wait", "--timeout", "0"))


class Slowest:
    """Of each command the slowest answer: seconds, kind of thing, and whose file or when."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, str, str]] = {}

    def run(self, command: Command, label: str, where: tuple[str, str], *words: str) -> None:
        """Run `gpusched words...`, whatever it ends with, and keep its time under `label` if it is the longest."""
        began = time.perf_counter()
        command.run(*words)
        took = time.perf_counter() - began
        self.found[label] = max(self.found.get(label, (0.0, "", "")), (took, *where))

    def table(self) -> str:
        """Return all as Markdown, slowest first."""
        lines = ["| command | slowest answer, s | what | where |", "|---|--:|---|---|"]
        rows = sorted(self.found.items(), key=lambda row: row[1], reverse=True)
        return "\n".join([*lines, *(f"| `{label}` | {took:.2f} | {kind} | {at} |" for label, (took, kind, at) in rows)])


@contextmanager
def owner(kind: str) -> Iterator[Command]:
    """Give the command line of whoever owns the jobs."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        base.chmod(0o755)
        command: Command = Command(base / "home")
        if kind == "unreadable" and os.geteuid() == 0:
            (base / "space").mkdir()
            space = stack.enter_context(space_for_all(base / "space"))
            command = User(NOBODY, base / "home", {}, space=space, umask=0o077)
        stack.callback(command.end)
        yield command


def measure(kind: str, slowest: Slowest) -> None:
    """Put things of one kind in the place of jobs' files, and time what people type, with the daemon and without."""
    with owner(kind) as command:
        jobs = {name: submitted(command) for name in (*FILES, ALL, NONE)}
        until(lambda: set(states(command).values()) == {"running"}, "all jobs run")
        for file, job in jobs.items():
            spoil(command, kind, job, FILES if file == ALL else () if file == NONE else (file,))
        ask(command, kind, jobs, slowest, "with a daemon")
        os.kill(daemon_pid(command), signal.SIGKILL)
        for words in READING:
            label = f"{' '.join(words)}, without a daemon"
            slowest.run(command, label, (kind, "all jobs"), *words)
        slowest.run(command, "daemon start", (kind, "all jobs"), "daemon", "start")
        ask(command, kind, jobs, slowest, "after a restart")
        for file, job in jobs.items():
            slowest.run(command, "stop", (kind, file), "stop", job)
        kill(command, kind, slowest)
        left = json.loads(command.run("ps", "--json").stdout)["jobs"]
        live = [one["id"] for one in left if one["state"] in ("running", "stopping")]
        if live:
            print(f"{kind}: not stopped: {', '.join(live)}")


def kill(command: Command, kind: str, slowest: Slowest) -> None:
    """Time `stop --kill` of jobs that ignore SIGTERM."""
    jobs = {file: json.loads(command.run(*STUBBORN).stdout)["id"] for file in KILLED}
    until(lambda: all(states(command)[job] == "running" for job in jobs.values()), "all of them run")
    for file, job in jobs.items():
        until(lambda: command.run("logs", job).stdout.endswith("deaf\n"), "it ignores SIGTERM")  # noqa: B023
        spoil(command, kind, job, FILES if file == ALL else (file,))
        slowest.run(command, "stop --kill", (kind, file), "stop", "--kill", job)


def ask(command: Command, kind: str, jobs: dict[str, str], slowest: Slowest, when: str) -> None:
    """Time what only reads."""
    for words in READING:
        slowest.run(command, " ".join(words), (kind, when), *words)
    for file, job in jobs.items():
        for first, *options in OF_ONE_JOB:
            slowest.run(command, " ".join((first, "JOB", *options)), (kind, file), first, job, *options)


def main() -> None:
    """Measure, and print what came out."""
    slowest = Slowest()
    for kind in KINDS:
        measure(kind, slowest)
    print(slowest.table())
    over = [label for label, (took, *_) in slowest.found.items() if took > PROMISED_S]
    print(f"\nOver {PROMISED_S:g} s: {', '.join(over) or 'nothing'}.")


if __name__ == "__main__":
    main()
