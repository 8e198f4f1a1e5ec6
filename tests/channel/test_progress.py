"""Progress reaches people whole, or costs nothing."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from gpusched.channel import Progress


def lines(run_dir: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run_dir / "progress.jsonl").read_text().splitlines()]


def test_a_report_is_one_line_with_its_time_and_only_what_was_given(tmp_path: Path) -> None:
    progress = Progress(tmp_path, clock=lambda: 1000.5)
    progress.report(step=3, score=np.float64(0.5), replicas={"actor.0": {"steps_per_s": 7.0}}, loss=0.25, games=4)
    progress.report(note="saved")
    assert lines(tmp_path) == [
        {
            "time": 1000.5,
            "step": 3,
            "score": 0.5,
            "replicas": {"actor.0": {"steps_per_s": 7.0}},
            "loss": 0.25,
            "games": 4,
        },
        {"time": 1000.5, "note": "saved"},
    ]


def test_what_is_not_a_number_becomes_null(tmp_path: Path) -> None:
    Progress(tmp_path, clock=lambda: 1.0).report(score=math.nan, loss=math.inf)
    assert lines(tmp_path) == [{"time": 1.0, "score": None, "loss": None}]


def test_a_frame_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.frame("one")
    progress.frame("two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("frame.txt", "two")]


def test_watching_is_seen_and_not_asked_for_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.progress._CHECK_S", 3600.0)
    progress = Progress(tmp_path)
    assert not progress.watched
    (tmp_path / "watched").touch()
    assert not progress.watched, "asked once in a while"
    assert Progress(tmp_path).watched
    os.utime(tmp_path / "watched", (1, 1))
    assert not Progress(tmp_path).watched, "whoever watched has gone"


def test_outside_a_launch_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GPUSCHED_JOB", raising=False)
    monkeypatch.chdir(tmp_path)
    progress = Progress()
    progress.report(step=1)
    progress.frame("x")
    assert not progress.watched
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_run_directory_that_is_gone_stops_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress(tmp_path / "gone")
    progress.report(step=1)
    progress.report(step=2)
    progress.frame("x")
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["no more progress is written"]
