"""A log that has grown beyond its cap is cut in its middle: what is kept, and what its readers see of it."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusched.execution import log_cut
from gpusched.execution.directory import JobDirectory, create
from gpusched.execution.job_logs import LogTail
from gpusched.execution.log_cut import HEAD, LogCut, cut_log, read_cut
from gpusched.linux.holes import NoHolesError, punch_hole
from gpusched.linux.regular_files import read_from
from gpusched.supervisor.output import Logs

CAP = 4 * HEAD
NOTICE = re.compile(rb"\n\[gpusched: \d+ MiB \((\d+) bytes\) of this log were cut here.*\n")


def lines(first: int, size: int) -> bytes:
    """Lines that are numbered from `first` on, 64 bytes each."""
    return b"".join(b"%062d \n" % number for number in range(first, first + size // 64))


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def everything(tail: LogTail) -> bytes:
    return b"".join(tail.pieces())


@pytest.fixture(params=["holes", "no holes"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of twice its cap, on a file system that makes holes, and on one that makes none."""

    def refuse(*_: object) -> None:
        raise NoHolesError(95, "Operation not supported")

    if request.param == "no holes":
        monkeypatch.setattr(log_cut, "punch_hole", refuse)
    path = tmp_path / "actor.0.log"
    append(path, lines(0, 2 * CAP))
    return path


def test_the_beginning_and_the_latest_half_of_the_cap_stay_and_a_line_states_what_was_cut(log: Path) -> None:
    cut = cut_log(log, CAP)
    assert cut is not None
    whole = lines(0, 2 * CAP)
    shown = everything(LogTail(log, None))
    (notice,) = NOTICE.finditer(shown)
    assert int(notice[1]) == cut.size == 5 * HEAD
    assert shown[: notice.start()] == whole[: notice.start()]
    assert shown[notice.end() :] == whole[HEAD + cut.size :]
    assert len(shown) == len(whole) - cut.size
    assert log.stat().st_blocks * 512 <= CAP


def test_a_log_within_its_cap_is_left_alone(log: Path) -> None:
    before = log.read_bytes()
    assert cut_log(log, 2 * CAP) is None
    assert log.read_bytes() == before


def test_it_is_cut_again_when_it_has_grown_again_and_the_line_has_the_sum(log: Path) -> None:
    first = cut_log(log, CAP)
    assert cut_log(log, CAP) == first, "nothing was added"
    append(log, lines(2 * CAP // 64, CAP))
    second = cut_log(log, CAP)
    assert first is not None
    assert second is not None
    assert second.size == 9 * HEAD
    shown = everything(LogTail(log, None))
    assert [int(one[1]) for one in NOTICE.finditer(shown)] == [second.size]
    assert shown.endswith(lines(10 * HEAD // 64, 3 * CAP - 10 * HEAD))


def test_a_follower_gets_each_line_once_however_often_the_log_is_cut(log: Path) -> None:
    tail, seen = LogTail(log, None), []
    for turn in range(2, 6):
        seen.append(everything(tail))
        cut_log(log, CAP)
        append(log, lines(turn * CAP // 64, CAP))
    seen.append(everything(tail))
    assert b"".join(seen) == lines(0, 6 * CAP)


def test_a_follower_that_has_fallen_behind_is_shown_what_it_missed(log: Path) -> None:
    tail = LogTail(log, None)
    pieces = tail.pieces()
    read = b"".join(next(pieces) for _ in range(HEAD // (1 << 16) + 1))  # a little more than the beginning
    pieces.close()  # type: ignore[attr-defined]
    cut = cut_log(log, CAP)
    assert cut is not None
    rest = everything(tail)
    (notice,) = NOTICE.finditer(rest)
    assert (notice.start(), int(notice[1])) == (0, HEAD + cut.size - len(read))
    assert rest[notice.end() :] == lines(0, 2 * CAP)[HEAD + cut.size :]


def test_the_last_lines_of_a_log_that_was_cut_are_those_of_its_end(log: Path) -> None:
    cut_log(log, CAP)
    assert everything(LogTail(log, 2)) == lines(2 * CAP // 64 - 2, 128)
    assert everything(LogTail(log, 0)) == b""


def test_what_a_program_writes_while_its_log_is_cut_is_all_there(tmp_path: Path) -> None:
    path, done = tmp_path / "log", threading.Event()
    path.touch()

    def write() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        for number in range(0, 4 * CAP // 64, 64):
            os.write(descriptor, lines(number, 4096))
        os.close(descriptor)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    tail, seen, cuts = LogTail(path, None), b"", 0
    while not done.is_set():
        seen += everything(tail)
        before = cuts
        cuts = cut.size if (cut := cut_log(path, CAP)) else 0
        assert cuts >= before
    writer.join()
    seen += everything(tail)
    cut_log(path, CAP)
    kept = everything(LogTail(path, None))
    whole = lines(0, 4 * CAP)
    (notice,) = NOTICE.finditer(kept)
    assert kept[notice.end() :] == whole[HEAD + int(notice[1]) :]
    assert NOTICE.sub(b"", seen[-CAP // 4 :]) == whole[-CAP // 4 :]


def test_what_is_read_in_parts_has_no_zeros_of_the_hole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, lines(0, 2 * CAP))
    cut_log(path, CAP)
    position, parts = 100, []
    while (found := read_from(path, position, 50_000))[0]:
        parts.append(found[0])
        position = found[1] + len(found[0])
    assert b"\0" not in b"".join(parts)


def test_a_link_in_the_place_of_a_log_is_not_cut(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    append(thesis, lines(0, 2 * CAP))
    (tmp_path / "log").symlink_to(thesis)
    with pytest.raises(OSError, match="link"):
        cut_log(tmp_path / "log", CAP)
    assert thesis.read_bytes() == lines(0, 2 * CAP)


def logs_of(tmp_path: Path, report: Callable[[str], None], cap: int) -> tuple[JobDirectory, Logs]:
    directory = create(tmp_path, "snake")
    return directory, Logs(directory, report, cap=cap, names=("actor.0", "actor.1", "zygote"))


@pytest.mark.parametrize(("cap", "is_cut"), [(CAP, True), (0, False)])
def test_a_supervisor_cuts_the_logs_that_are_too_large_unless_there_is_no_cap(
    tmp_path: Path, cap: int, is_cut: bool
) -> None:
    reports: list[str] = []
    directory, logs = logs_of(tmp_path, reports.append, cap)
    append(directory.log("actor.0"), lines(0, 2 * CAP))
    append(directory.log("actor.1"), lines(0, CAP))
    for _ in range(2):
        logs.trim()
    with directory.log("actor.0").open("rb") as first, directory.log("actor.1").open("rb") as second:
        assert read_cut(first.fileno()) == (LogCut(5 * HEAD) if is_cut else None)
        assert read_cut(second.fileno()) is None
    assert reports == []


def test_a_log_that_somebody_emptied_is_cut_when_it_is_too_large_again(tmp_path: Path) -> None:
    directory, logs = logs_of(tmp_path, pytest.fail, CAP)
    path = directory.log("actor.0")
    append(path, lines(0, 4 * CAP))
    logs.trim()
    os.truncate(path, 0)
    logs.trim()
    append(path, lines(0, 3 * CAP))
    logs.trim()
    with path.open("rb") as file:
        assert read_cut(file.fileno()) == LogCut(9 * HEAD)


def test_a_log_that_cannot_be_cut_is_reported_once_and_the_next_one_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []
    directory, logs = logs_of(tmp_path, reports.append, CAP)
    for name in ("actor.0", "zygote"):
        append(directory.log(name), lines(0, 2 * CAP))
    ill = directory.log("actor.0").stat().st_ino

    def fail(descriptor: int, begin: int, end: int) -> None:
        if os.fstat(descriptor).st_ino == ill:
            raise OSError(5, "Input/output error")
        punch_hole(descriptor, begin, end)

    monkeypatch.setattr(log_cut, "punch_hole", fail)
    for _ in range(2):
        logs.trim()
    with directory.log("zygote").open("rb") as file:
        assert read_cut(file.fileno()) is not None
    assert reports == [f"{directory.log('actor.0')} is not cut, and grows: Input/output error"]
