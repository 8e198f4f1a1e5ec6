"""A plugin of pytest: `--shuffle SEED` runs tests in random order, `--record DIR` writes down what failed and died.

In DIR, `failures.jsonl` has a line for each failed test and `ends.jsonl` one for each process of pytest-xdist that
died: its pid, its exit status, the test that it was running, and each signal that would end it and reached it.
"""

import faulthandler
import json
import os
import random
import signal
import subprocess
import traceback
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["ENDS", "FAILURES"]

FAILURES: Final = "failures.jsonl"
ENDS: Final = "ends.jsonl"
_DEADLY: Final = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_ENDS_WITHIN_S: Final = 60.0
_EXIT: Final = os._exit


def pytest_addoption(parser: pytest.Parser) -> None:
    """See the module."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in the random order of this seed")
    parser.addoption("--record", metavar="DIR", help="write down there which tests failed, and what died")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle: each process of pytest-xdist does it alike."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)  # noqa: S311 (no secret)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record."""
    directory = config.getoption("--record")
    if directory is None:
        return
    _Process(Path(directory)).attend()
    config.pluginmanager.register(_Recorder(Path(directory), reports=not hasattr(config, "workerinput")))


class _Process:
    """What this process leaves of itself in files that begin with its pid: a signal may leave time for nothing else."""

    def __init__(self, directory: Path) -> None:
        self._stem = str(directory / str(os.getpid()))
        self._pid = os.getpid()
        self._files: list[Any] = []

    def attend(self) -> None:
        """Write a traceback where a deadly signal arrives, and then let it do what it does, or os._exit is called."""
        for number in _DEADLY:
            self._files.append(open(f"{self._stem}.{number.name}", "w"))  # noqa: SIM115, PTH123 (open to the end)
            # Not of all threads: those go on meanwhile, and to read their frames can be a fault of the memory.
            faulthandler.register(number, self._files[-1], all_threads=False, chain=True)
        os._exit = self._exit  # type: ignore[assignment]

    def _exit(self, code: int) -> None:
        if os.getpid() == self._pid:  # what a test has forked may well leave so
            Path(f"{self._stem}.os._exit").write_text("".join(traceback.format_stack()))
        _EXIT(code)


class _Recorder:
    def __init__(self, directory: Path, *, reports: bool) -> None:
        self._directory, self._reports = directory, reports
        self._current = directory / f"{os.getpid()}.test"

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._current.write_text(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(FAILURES, test=report.nodeid, when=report.when, reason=_reason(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(FAILURES, test=report.nodeid, when="collect", reason=_reason(report))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Write how a process ended that pytest-xdist had not ended: execnet keeps what it started."""
        if not error:
            return
        process: subprocess.Popen[bytes] = node.gateway._io.popen
        try:
            status = process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            status = None
        told = self._directory / f"{process.pid}.test"
        signals = [
            path.name.partition(".")[2]
            for path in sorted(self._directory.glob(f"{process.pid}.*"))
            if path != told and path.stat().st_size
        ]
        test = told.read_text() if told.exists() else "no test"
        self._write(ENDS, worker=node.gateway.id, pid=process.pid, status=status, test=test, signals=signals)

    def _write(self, name: str, **fields: object) -> None:
        if self._reports:
            with (self._directory / name).open("a") as file:
                file.write(json.dumps(fields) + "\n")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr).strip()
    return text.partition("\n")[0]
