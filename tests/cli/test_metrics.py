"""`gpusched metrics`: on standard output, into files, and again and again."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.command import Command
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn

GPUS = "gpus 2\nset * used 100\n"


@pytest.fixture
def command(tmp_path: Path, stand_in: StandIn) -> Command:
    host = stand_in.host(GPUS)
    return Command(tmp_path, {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")})


def test_it_prints_what_prometheus_reads_also_without_a_daemon_and_starts_none(command: Command) -> None:
    shown = command.run("metrics")
    assert (shown.returncode, shown.stderr) == (0, "")
    used = [
        sample.value
        for family in text_string_to_metric_families(shown.stdout)
        for sample in family.samples
        if sample.name == "gpusched_device_memory_used_bytes"
    ]
    assert used == [100 << 20] * 2
    assert not command.state.exists()
    if (tool := shutil.which("promtool")) is not None:
        checked = subprocess.run([tool, "check", "metrics"], input=shown.stdout, text=True, check=False)
        assert checked.returncode == 0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_files_are_replaced_again_and_again_until_it_is_ended(
    command: Command, tmp_path: Path, end: signal.Signals
) -> None:
    out, mapping = tmp_path / "gpusched.prom", tmp_path / "jobs"
    mapping.mkdir()
    (mapping / "7").write_text("snake-1\n")
    (mapping / "not ours").write_text("kept")
    run = command.start("metrics", "--output", str(out), "--dcgm-mapping", str(mapping), "--every", "0.1")
    until(out.exists, "the first file")
    first = out.stat()
    assert oct(first.st_mode)[-3:] == "644", "node_exporter is another user"
    until(lambda: out.stat().st_ino != first.st_ino, "another one")
    assert out.read_text().endswith("\n")
    assert sorted(path.name for path in mapping.iterdir() if path.suffix != ".tmp") == ["0", "1", "7", "not ours"]
    assert (mapping / "7").read_text() == "", "of a GPU that is there no more"
    (mapping / "0").write_text("snake-1\n")
    run.send_signal(end)
    printed, _ = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, printed) == (130, "")
    assert (mapping / "0").read_text() == "", "no job is named any more"
    assert (mapping / "not ours").read_text() == "kept"


def test_what_cannot_be_written_or_makes_no_sense_is_refused(command: Command, tmp_path: Path) -> None:
    nowhere = command.run("metrics", "--output", str(tmp_path / "nowhere" / "x.prom"))
    assert nowhere.returncode == 5
    assert "nowhere/x.prom: No such file or directory" in nowhere.stderr
    assert command.run("metrics", "--every", "15s").returncode == 2
    assert command.run("metrics", "--every", "soon", "--output", str(tmp_path / "x")).returncode == 2
