"""A short soak, so that its driver stays sound: the command as a person types it, to its end and with Ctrl-C."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.soak.measure import read_samples
from tests.stand_in.library import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the stand-ins with"),
]


def soak(out: Path, *words: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "tests.soak", "--out", str(out), *words]
    return subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def left(out: Path) -> list[str]:
    """Command lines of processes that name this soak, and mounts."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [words] if str(out) in words else []
    return found


def test_half_a_minute_of_a_mixed_life_holds_every_invariant(tmp_path: Path) -> None:
    done = soak(tmp_path, "--hours", "0.008", "--per-minute", "60", "--harm", "0.25", "--seed", "2")
    output, _ = done.communicate(timeout=360)
    assert done.returncode == 0, output
    assert "0 violations; what grew: nothing" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "soak.png").exists()
    assert read_samples(tmp_path / "samples.csv")
    assert left(tmp_path) == []


def test_ctrl_c_ends_it_with_the_report_so_far_and_leaves_nothing(tmp_path: Path) -> None:
    running = soak(tmp_path, "--hours", "1", "--seed", "3")
    log = tmp_path / "soak.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and "run -d" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=360)
    assert running.returncode == 0, output
    assert "interrupted by Ctrl-C" in output
    assert left(tmp_path) == []
