"""What a view of a job reads again and again, and the files that a job left."""

import os
from pathlib import Path

import pytest

import gpusched
from gpusched.api.handle import Watch
from gpusched.api.logs import NewLines
from gpusched.errors import GpuschedError, HostFault, NotFound, UsageError
from tests.patience import until


@pytest.mark.usefixtures("command")
def test_new_lines_come_once_and_a_line_without_an_end_is_seen_as_far_as_it_is(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo one; printf two; until [ -e {go} ]; do sleep 0.05; done; echo; printf '%2000000d'"
    job = gpusched.run(["sh", "-c", script], num_gpus=0, hold=True)
    new = NewLines(job)
    assert new.read() == ([], False), "it waits in the queue"
    job.release()
    lines: list[str] = []

    def has_begun() -> bool:
        found, over = new.read()
        lines.extend(found)
        assert not over
        return new.unfinished == ["two"]

    until(has_begun, "what it has written is seen")
    assert lines[1:] == ["one"]
    assert new.read() == ([], False)
    go.touch()
    job.wait()
    found, over = new.read()
    assert (found[0], over) == ("two", False), "not all 2 MB at once"
    while not over:
        more, over = new.read()
        found += more
    assert "".join(found[1:]) == f"{0:2000000d}"
    assert len(found) > 2, "a line without an end comes in parts"
    assert new.unfinished == []


@pytest.mark.usefixtures("command")
def test_a_moment_has_the_reports_since_the_one_before_and_asks_for_a_game_where_that_is_wanted(
    tmp_path: Path,
) -> None:
    job = gpusched.run(["true"], num_gpus=0, hold=True)
    reports = job.run_dir / "progress.jsonl"
    watch = Watch(job)
    assert not watch.read().reports
    reports.write_text('{"time": 1, "score": 2}\n{"time": 2, "sco')
    (job.run_dir / "frame.txt").write_text("a game")
    moment = watch.read()
    assert (moment.reports, moment.frame) == ([{"time": 1, "score": 2}], "a game")
    with reports.open("a") as file:
        file.write('re": 3}\n')
    assert watch.read().reports == [{"time": 2, "score": 3}]
    assert not (job.run_dir / "watched").exists()
    (job.run_dir / "watched").symlink_to(tmp_path / "outside")
    Watch(job, frames=True).read()
    assert not (tmp_path / "outside").exists(), "a link of a job is not followed"
    (job.run_dir / "watched").unlink()
    watch = Watch(job, frames=True)
    watch.read()
    os.utime(job.run_dir / "watched", (1, 1))
    watch.read()
    assert (job.run_dir / "watched").stat().st_mtime > 1, "it is renewed"


@pytest.mark.usefixtures("command")
def test_the_files_of_a_job_are_its_results_and_nothing_leads_out_of_them(tmp_path: Path) -> None:
    job = gpusched.run(["true"], num_gpus=0, hold=True)
    here = job.run_dir
    (here / "plots" / "deep").mkdir(parents=True)
    (here / "a.txt").write_text("text")
    (here / "plots" / "deep" / "b.png").write_bytes(b"png")
    (tmp_path / "secret").write_text("mine")
    (here / "link").symlink_to(tmp_path / "secret")
    (here / "out").symlink_to(tmp_path)
    os.mkfifo(here / "pipe")
    for at, name in enumerate(("a.txt", "plots/deep/b.png")):
        os.utime(here / name, (at, at))
    assert [(file.name, file.bytes, file.changed) for file in job.files()] == [
        ("plots/deep/b.png", 3, 1.0),
        ("a.txt", 4, 0.0),
    ]
    with job.open("plots/deep/b.png") as file:
        assert file.read() == b"png"
    for name in (
        "none",
        "..",
        ".",
        "",
        "a.txt/b",
        f"../{here.name}/a.txt",
        str(here / "a.txt"),
        "plots//deep/b.png",
        "x\0y",
    ):
        with pytest.raises(NotFound):
            job.open(name)
    for name in ("link", "out/secret", "pipe", "plots"):
        with pytest.raises(GpuschedError) as caught:
            job.open(name)
        assert isinstance(caught.value, HostFault | NotFound)
    for name in ("spec.json", "logs/command.0.log", ".status.json.x"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("gpusched's own")
        with pytest.raises(NotFound):
            job.open(name)
    with pytest.raises(UsageError):
        job.open(7)  # type: ignore[arg-type]


@pytest.mark.usefixtures("command")
def test_a_directory_with_very_many_files_costs_as_much_as_one_with_a_thousand() -> None:
    job = gpusched.run(["true"], num_gpus=0, hold=True)
    for number in range(1200):
        (job.run_dir / f"{number}.txt").touch()
    assert 900 < len(job.files()) <= 1000
