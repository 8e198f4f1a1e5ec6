"""A short soak, so that its driver stays sound: the command as a person types it, to its end and with Ctrl-C."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import until
from tests.soak.measure import read_samples
from tests.stand_in.library import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the stand-ins with"),
]


@contextlib.contextmanager
def soak(out: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A soak that is ended in order if a test of it fails, so that it leaves nothing."""
    argv = [sys.executable, "-m", "tests.soak", "--out", str(out), *words]
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGINT)
                running.communicate()


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
    with soak(tmp_path, "--hours", "0.008", "--per-minute", "60", "--harm", "0.25", "--seed", "2") as done:
        output, _ = done.communicate(timeout=360)
    assert done.returncode == 0, output
    assert "0 violations; what grew: nothing" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "soak.png").exists()
    assert read_samples(tmp_path / "samples.csv")
    assert left(tmp_path) == []


def test_ctrl_c_ends_it_with_the_report_so_far_and_leaves_nothing(tmp_path: Path) -> None:
    with soak(tmp_path, "--hours", "1", "--seed", "3") as running:
        until(lambda: "run -d" in (tmp_path / "soak.log").read_text(), "something has been submitted", every_s=0.1)
        os.killpg(running.pid, signal.SIGINT)
        output, _ = running.communicate(timeout=360)
    assert running.returncode == 0, output
    assert "interrupted by Ctrl-C" in output
    assert left(tmp_path) == []
