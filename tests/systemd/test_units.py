import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

UNITS = Path(__file__).parents[2] / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))

needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@needs_analyze
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_say_about_a_unit(unit: Path) -> None:
    told = analyze("verify", str(unit))
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@needs_analyze
def test_the_daemon_of_the_system_instance_is_sandboxed() -> None:
    told = analyze("security", "--offline=true", "--threshold=22", str(UNITS / "gpusched@.service"))
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("unit", ["gpusched.service", "gpusched@.service"])
def test_a_daemon_is_watched_and_leaves_the_end_of_jobs_to_them(unit: str) -> None:
    lines = (UNITS / unit).read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=30", "Restart=on-failure", "KillMode=mixed"} <= set(lines)


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not installed")
def test_tmpfiles_makes_a_directory_that_all_users_may_write_and_none_may_empty(tmp_path: Path) -> None:
    entry = str(UNITS / "gpusched.tmpfiles.conf")
    subprocess.run(["systemd-tmpfiles", "--create", f"--root={tmp_path}", entry], timeout=PATIENCE_S, check=False)
    made = tmp_path / "run" / "gpusched"
    assert made.is_dir()
    assert oct(made.stat().st_mode)[-4:] == "1777"
    assert oct((made / "lock").stat().st_mode)[-4:] == "0644"
