"""`scripts/stress-tests`, on a few tests that fail, die and depend on each other."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched.linux.processes import Process, below, command_line, start_time
from tests.patience import until
from tests.stress.__main__ import ROOT

pytestmark = pytest.mark.slow
SCRIPT = ROOT / "scripts" / "stress-tests"
PATIENCE_S = 240.0
TROUBLED = """
import os, signal, subprocess, sys

def test_leaves():
    os._exit(3)

def test_is_ended_from_outside():
    subprocess.run(["kill", "-TERM", str(os.getpid())])

def test_fails():
    assert 1 == 2, "as expected"

def test_passes():
    pass
"""
IN_ORDER = """
seen = []

def test_first():
    seen.append(1)

def test_second():
    assert seen
"""


def start(logs: Path, *words: str) -> "subprocess.Popen[str]":
    few = {"PYTEST_ADDOPTS": "--maxprocesses 2"}  # each loads all that the tests share
    env = os.environ | few | {"BIN": str(Path(sys.executable).parent), "TMPDIR": str(logs)}
    return subprocess.Popen([SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def living(processes: list[Process]) -> list[Process]:
    """Return which live: what has ended and was not waited for does not."""
    return [one for one in processes if start_time(one.pid) == one.start]


def test_the_table_names_what_failed_and_what_died_of_what(tmp_path: Path) -> None:
    path = tmp_path / "test_troubled.py"
    path.write_text(TROUBLED)
    with start(tmp_path, "1", "--seed", "7", "--loops", "0", str(path)) as process:
        told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "rounds: 1, tests that failed: 3" in told
    assert re.search(r"^1 of 1  \S*::test_fails\n +round 1 \(seed 7\): .*as expected", told, re.MULTILINE), told
    assert re.search(r"ended with exit status 3, having met os._exit, in \S*::test_leaves$", told, re.MULTILINE), told
    assert re.search(r"ended by signal 15, having met SIGTERM, in \S*outside$", told, re.MULTILINE), told


def test_tests_that_depend_on_each_other_are_found_by_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "test_in_order.py"
    path.write_text(IN_ORDER)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.stress.plugin", "-p", "no:xdist", str(path)]
    codes = [subprocess.run([*words, "--shuffle", seed], cwd=ROOT, check=False).returncode for seed in ("0", "1")]
    assert codes == [0, 1]


def test_ctrl_c_ends_the_tests_and_the_busy_loops(tmp_path: Path) -> None:
    path, runs = tmp_path / "test_waits.py", tmp_path / "runs"
    path.write_text(f"import time\n\ndef test_waits():\n    open({str(runs)!r}, 'w').close()\n    time.sleep(1000)\n")
    with start(tmp_path, "1", "--loops", "1", str(path)) as process:
        until(runs.exists, "the test runs")
        left = below(process.pid)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "rounds: 1, tests that failed: 0" in told
    until(lambda: not living(left), "none of its processes is left")


def test_the_busy_loops_end_also_where_the_script_is_killed(tmp_path: Path) -> None:
    path, runs = tmp_path / "test_waits.py", tmp_path / "runs"
    path.write_text(f"import time\n\ndef test_waits():\n    open({str(runs)!r}, 'w').close()\n    time.sleep(1000)\n")
    with start(tmp_path, "1", "--loops", "1", str(path)) as process:
        until(runs.exists, "the test runs")
        started = below(process.pid)
        loops = [one for one in started if "getppid" in command_line(one.pid)]
        process.kill()
    assert len(loops) == 1
    try:
        until(lambda: not living(loops), "none of the loops is left")
    finally:
        for one in living(started):
            os.kill(one.pid, signal.SIGKILL)
