"""What the supervisor reads of frameworks' peaks, whatever a job has put in the place of the files."""

from pathlib import Path

import msgspec
import pytest

from gpusched.execution.framework_peaks import FrameworkPeaks, ReplicaPeaks, read_peaks
from tests.odd_files import KINDS, put, within

TORCH = {"framework": "torch", "version": "2.13.0", "peak_mib": 700, "pool_mib": 900}
JAX = {"framework": "jax", "version": "0.10.2", "peak_mib": 10, "pool_mib": None}


def leave(run_dir: Path, name: str, content: object) -> None:
    (run_dir / "memory").mkdir(exist_ok=True)
    written = content if isinstance(content, bytes) else msgspec.json.encode(content)
    (run_dir / "memory" / name).write_bytes(written)


def test_without_a_file_there_are_no_peaks(tmp_path: Path) -> None:
    assert read_peaks(tmp_path, "actor.0", 0) is None
    (tmp_path / "memory").mkdir()
    assert read_peaks(tmp_path, "actor.0", 0) is None
    assert read_peaks(tmp_path / "no\0thing", "actor.0", 0) is None


def test_the_processes_of_one_attempt_of_one_replica_are_summed(tmp_path: Path) -> None:
    for pid in (7, 8):
        leave(tmp_path, f"actor.0.1.{pid}.json", [TORCH])
    for name in ("actor.0.0.7.json", "actor.0.11.7.json", "actor.1.1.7.json", "learner.0.1.7.json"):
        leave(tmp_path, name, [TORCH])
    assert read_peaks(tmp_path, "actor.0", 1) == ReplicaPeaks(
        processes=2,
        peak_mib=1400,
        pool_mib=1800,
        frameworks=(FrameworkPeaks(framework="torch", version="2.13.0", peak_mib=1400, pool_mib=1800),),
    )


def test_each_framework_and_each_of_its_versions_is_kept_apart_and_a_sum_with_an_unknown_part_is_unknown(
    tmp_path: Path,
) -> None:
    leave(tmp_path, "actor.0.0.7.json", [TORCH, JAX])
    leave(tmp_path, "actor.0.0.8.json", [TORCH | {"version": None}])
    found = read_peaks(tmp_path, "actor.0", 0)
    assert found is not None
    assert [(one.framework, one.version) for one in found.frameworks] == [
        ("jax", "0.10.2"),
        ("torch", None),
        ("torch", "2.13.0"),
    ]
    assert (found.processes, found.peak_mib, found.pool_mib) == (2, 1410, None)


ODD = {
    "nothing": b"",
    "no list": b"{}",
    "an empty list": b"[]",
    "half": msgspec.json.encode([TORCH])[:-5],
    "no text": b"\xff\xfe",
    "deep": b"[" * 10_000,
    "long": b"[" + b" " * 20_000 + b"]",
    "many": msgspec.json.encode([TORCH] * 17),
    "negative": msgspec.json.encode([TORCH | {"peak_mib": -1}]),
    "enormous": msgspec.json.encode([TORCH | {"peak_mib": 1 << 60}]),
    "a fraction": msgspec.json.encode([TORCH | {"peak_mib": 1.5}]),
    "no number": msgspec.json.encode([TORCH | {"pool_mib": True}]),
    "for a terminal": msgspec.json.encode([TORCH | {"framework": "torch\x1b[2J"}]),
    "a line more": msgspec.json.encode([TORCH | {"version": "2.13.0\n"}]),
    "a long name": msgspec.json.encode([TORCH | {"framework": "x" * 65}]),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_file_that_is_none_of_these_counts_for_nothing(tmp_path: Path, odd: str) -> None:
    leave(tmp_path, "actor.0.0.6.json", ODD[odd])
    assert read_peaks(tmp_path, "actor.0", 0) is None
    leave(tmp_path, "actor.0.0.7.json", [TORCH])
    found = read_peaks(tmp_path, "actor.0", 0)
    assert found is not None
    assert (found.processes, found.peak_mib) == (1, 700)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_counts_for_nothing_and_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    leave(tmp_path, "actor.0.0.7.json", [TORCH])
    put(kind, tmp_path / "memory" / "actor.0.0.6.json")
    found = within(lambda: read_peaks(tmp_path, "actor.0", 0))
    assert found is not None
    assert found.processes == 1
    put(kind, tmp_path / "memory")
    assert within(lambda: read_peaks(tmp_path, "actor.0", 0)) is None


def test_a_link_to_another_directory_is_not_followed(tmp_path: Path) -> None:
    leave(tmp_path, "actor.0.0.7.json", [TORCH])
    (tmp_path / "memory").rename(tmp_path / "elsewhere")
    (tmp_path / "memory").symlink_to(tmp_path / "elsewhere")
    assert read_peaks(tmp_path, "actor.0", 0) is None


@pytest.mark.parametrize("name", ["actor.0.0.7.json.new", "actor.0.0.x.json", "actor.0.0..json", "actor.0.0.²7.json"])
def test_files_with_other_names_count_for_nothing(tmp_path: Path, name: str) -> None:
    leave(tmp_path, name, [TORCH])
    assert read_peaks(tmp_path, "actor.0", 0) is None


def test_of_more_processes_than_are_read_the_sum_is_unknown(tmp_path: Path) -> None:
    for pid in range(64):
        leave(tmp_path, f"actor.0.0.{pid}.json", [TORCH])
    found = read_peaks(tmp_path, "actor.0", 0)
    assert found is not None
    assert found.processes == 64
    leave(tmp_path, "actor.0.0.64.json", [TORCH])
    assert read_peaks(tmp_path, "actor.0", 0) is None


def test_reading_keeps_no_descriptor_open(tmp_path: Path) -> None:
    for pid in range(70):
        leave(tmp_path, f"actor.0.0.{pid}.json", [TORCH])
    before = sorted(Path("/proc/self/fd").iterdir())
    read_peaks(tmp_path, "actor.0", 0)
    assert sorted(Path("/proc/self/fd").iterdir()) == before
