"""The commands that the soak types: each has a bound that only a hang meets, and none may show a traceback."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.journal import Journal

__all__ = ["Commands", "Result"]

BOUND_S: Final = 120.0
MOST_OUTPUT: Final = 64 << 20
FAULTS: Final = re.compile(r"Traceback \(most recent|internal error|KeyError|AssertionError", re.IGNORECASE)


@dataclass(frozen=True)
class Result:
    """How a command ended; `code` is that of subprocess. Times in monotonic seconds."""

    label: str
    argv: Sequence[str]
    code: int
    output: str
    errors: str
    begun: float
    ended: float

    def __str__(self) -> str:
        return f"{self.label}: code {self.code}, {' '.join(self.argv)[:300]!r}: {(self.output + self.errors)[-1200:]!r}"


@dataclass
class _Running:
    label: str
    argv: Sequence[str]
    process: "subprocess.Popen[bytes]"
    begun: float
    deadline: float
    files: tuple[Path, Path]
    then: Callable[[Result], None] | None


class Commands:
    """Starts commands, each in a session of its own, and collects them."""

    def __init__(self, folder: Path, env: Mapping[str, str], journal: Journal) -> None:
        self._folder, self._env, self._journal = folder, env, journal
        self._running: list[_Running] = []
        self._number = 0
        self.slowest: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(
        self,
        argv: Sequence[str],
        label: str,
        then: Callable[[Result], None] | None = None,
        *,
        bound_s: float = BOUND_S,
        env: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a command; `then` gets its result from a later poll(). It reads nothing from its input."""
        self._number += 1
        files = self._folder / f"{self._number}.out", self._folder / f"{self._number}.err"
        with files[0].open("wb") as output, files[1].open("wb") as errors:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**self._env, **(env or {})},
                cwd=self._folder,
                start_new_session=True,
            )
        now = time.monotonic()
        self._running.append(_Running(label, argv, process, now, now + bound_s, files, then))
        self._journal.done[f"command: {label}"] += 1
        self._journal.log(f"start {process.pid} {label}: {' '.join(argv)[:400]}")
        return process

    def ask(self, argv: Sequence[str], label: str, bound_s: float = BOUND_S) -> Result:
        """Run a command to its end; the other ones are collected meanwhile."""
        results: list[Result] = []
        self.start(argv, label, results.append, bound_s=bound_s)
        while not results:
            self.poll()
            time.sleep(0.01)
        return results[0]

    def poll(self) -> None:
        """Collect what has ended, and end what is past its bound."""
        for one in list(self._running):
            if one.process.poll() is not None:
                self._running.remove(one)
                self._collect(one)
            elif time.monotonic() > one.deadline:
                self._journal.violation(
                    "every command answers", f"{one.label} hangs: {one.argv} {_stuck(one.process.pid)}"
                )
                one.deadline += 3600
                _kill_session(one.process.pid)

    def end(self) -> None:
        """Kill what is left."""
        for one in self._running:
            _kill_session(one.process.pid)
            one.process.wait()
        self._running.clear()

    def _collect(self, one: _Running) -> None:
        output, errors = (_taken(path) for path in one.files)
        result = Result(one.label, one.argv, one.process.returncode, output, errors, one.begun, time.monotonic())
        seconds = result.ended - result.begun
        self.slowest[one.label] = max(seconds, self.slowest.get(one.label, 0))
        self._journal.log(f"ended {one.process.pid} {one.label}: code {result.code} after {seconds:.2f} s")
        if one.label != "logs" and FAULTS.search(output + errors):
            self._journal.violation("no traceback, no internal error", str(result))
        if one.then is not None:
            one.then(result)


def _taken(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(MOST_OUTPUT).decode(errors="replace")
    path.unlink()
    return text


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _stuck(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"(in {Path(f'/proc/{pid}/wchan').read_text()}, {Path(f'/proc/{pid}/syscall').read_text().strip()})"
    return ""
