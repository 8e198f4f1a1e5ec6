"""scripts/verify-gpu where there is no GPU, and what it brings along."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.ground import Ground
from bench.gpu.parts import learning
from bench.host import running_daemon

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "verify-gpu"


def test_without_a_gpu_it_says_so_and_ends_well(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()  # where there is a driver it is hidden by what is no library
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No NVIDIA GPU on this machine: there is nothing to verify.\n"


def test_each_package_that_it_brings_along_has_one_locked_version_and_hashes() -> None:
    found = runpy.run_path(str(SCRIPT))["locked"]()
    assert set(found) == set(runpy.run_path(str(SCRIPT))["WANTED"])
    for name, block in found.items():
        assert block.startswith(f"{name}=="), block
        assert "--hash=sha256:" in block


def test_it_names_what_is_missing_and_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(SCRIPT))
    functions = script["missing"].__globals__
    monkeypatch.setitem(functions, "WHEELS", tmp_path)
    monkeypatch.setitem(functions, "WANTED", ["msgspec", "no-such-package"])
    assert script["missing"]() == [Path("no-such-package")]
    wheel = tmp_path / "no_such_package-1.0-py3-none-any.whl"
    wheel.touch()
    assert script["missing"]() == [wheel]


@pytest.mark.slow
@pytest.mark.timeout(900)  # seconds alone, more on a busy machine
def test_what_is_learnt_with_each_framework_stands_beside_the_cpu() -> None:
    with running_daemon() as daemon:
        ground = Ground(daemon)
        ground.frameworks = ["tensorflow"]
        page = learning(0.02)(ground)
    assert "launch snake --procs 4 --minutes 0.02 --seed 1` (on the CPU: and `--machine=cpu`)" in page
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in page.splitlines() if "| tensorflow" in line]
    assert [row[:2] for row in rows] == [["tensorflow", "the GPU"], ["tensorflow", "the CPU"]]
    assert all(row[2].replace(",", "").isdigit() for row in rows)
