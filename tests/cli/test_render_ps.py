"""The table of jobs, drawn from values."""

import re
from typing import Any

import msgspec
import pytest

from gpusched.model.plan import DeviceShare
from gpusched.model.status import (
    ExitReason,
    JobState,
    JobStatus,
    JoinedHost,
    JoinedJob,
    ReplicaState,
    ReplicaStatus,
)
from gpusched.render.ansi import painted
from gpusched.render.job_format import end_line, host_text, span, state_text, time_run
from gpusched.render.ps import draw_table
from gpusched.render.text import cell_width, cut, cut_middle

NOW = 1_800_000_000.0


def job(identity: str = "run-1", state: JobState = JobState.RUNNING, **fields: object) -> JobStatus:
    told = {"workload": "run", "counts": (), "replicas": (), "run_dir": "/j", "created": NOW - 100, **fields}
    return JobStatus(id=identity, state=state, **told)  # type: ignore[arg-type]


def replica(state: ReplicaState = ReplicaState.RUNNING, **fields: object) -> ReplicaStatus:
    return ReplicaStatus(name="command.0", role="command", state=state, **fields)  # type: ignore[arg-type]


def failed(reason: ExitReason) -> JobStatus:
    return job(state=JobState.FAILED, replicas=(replica(ReplicaState.FAILED, exit=reason),), ended=NOW)


def table(*jobs: JobStatus, width: int | None = None, colour: bool = False, why: bool = False) -> list[str]:
    return [painted(line.pieces, 16 if colour else 0) for line in draw_table(jobs, NOW, width, why=why)]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ExitReason(kind="crashed", code=3), "failed: code 3"),
        (ExitReason(kind="signalled", signal=11), "failed: SIGSEGV"),
        (ExitReason(kind="signalled", signal=40), "failed: signal 40"),
        (ExitReason(kind="oom", signal=9), "failed: out of memory"),
        (ExitReason(kind="overrun", message="uses much"), "failed: overrun"),
        (ExitReason(kind="spawn-failed", message="no such file"), "failed: not started"),
    ],
)
def test_a_failed_job_says_of_what(reason: ExitReason, words: str) -> None:
    assert state_text(failed(reason)) == words


def test_a_held_job_is_called_held() -> None:
    assert state_text(job(state=JobState.QUEUED, held=True)) == "held"


def test_a_column_of_memory_has_one_unit() -> None:
    small = job(replicas=(replica(device_index=0, share_mib=962),))
    large = job(replicas=(replica(device_index=1, share_mib=15360),))

    def memory(*jobs: JobStatus) -> list[str]:
        return [" ".join(row.split()[4:6]) for row in table(*jobs)[1:]]

    assert memory(small) == ["962 MiB"]
    assert memory(small, large) == ["0.9 GiB", "15.0 GiB"]


def test_a_row_tells_devices_memory_and_the_whole_command() -> None:
    share = DeviceShare(device_index=3, device_uuid="GPU-3", share_mib=6000)
    one = replica(device_index=1, share_mib=6000, further=(share,))
    head, row = table(job(replicas=(one,), command=("python", "a b.py"), started=NOW - 61, name="tune"))

    assert head.split() == ["ID", "NAME", "STATE", "PROCS", "GPUS", "MEMORY", "TIME", "AGE", "COMMAND"]
    assert row.split(maxsplit=9) == [
        "run-1",
        "tune",
        "running",
        "1/1",
        "1,3",
        "11.7",
        "GiB",
        "1m01s",
        "1m40s",
        "python 'a b.py'",
    ]


def test_simulated_devices_are_marked() -> None:
    assert "  ~0  " in table(job(replicas=(replica(device_index=0),), simulated=True))[1]


def test_columns_that_would_be_empty_are_left_out() -> None:
    assert table(job())[0].split() == ["ID", "STATE", "PROCS", "TIME", "AGE", "COMMAND"]


def test_no_line_is_wider_than_the_terminal_and_the_command_is_cut() -> None:
    one = job(
        name="x" * 10, command=("python", *["--option"] * 40, "--seed=3"), why="needs much " * 30, state=JobState.QUEUED
    )
    for width in (60, 80, 120):
        lines = table(one, width=width, why=True)
        assert all(cell_width(line) <= width for line in lines)
        assert lines[1].endswith("--seed=3"), "commands of one person differ at their end"


def test_why_stands_under_each_job_that_waits() -> None:
    waits = job("run-2", JobState.QUEUED, why="needs 1 whole GPU; GPU 0 has 9.1 GiB held by run-1")
    held = job("run-3", JobState.QUEUED, held=True)

    lines = table(job(), waits, held, why=True)

    assert lines[3] == "    needs 1 whole GPU; GPU 0 has 9.1 GiB held by run-1"
    assert lines[5] == "    held: gpusched release run-3"
    assert len(lines) == 6


def test_colours_change_nothing_but_the_colour() -> None:
    jobs = (job(name="running"), job("run-2", JobState.FAILED, command=("failed",)))

    coloured = table(*jobs, width=80, colour=True)

    assert [re.sub(r"\x1b\[\d*m", "", line) for line in coloured] == table(*jobs, width=80)
    assert "\x1b[32mrunning\x1b[0m" in coloured[1]
    assert "\x1b[31mfailed\x1b[0m" in coloured[2]


def test_a_foreign_command_line_cannot_move_the_cursor() -> None:
    assert "\x1b" not in "".join(table(job(command=("\x1b[2J",), name="\r\x1b[31m"), why=True))


def test_wide_characters_keep_the_columns_in_line() -> None:
    rows = table(job(name="学习"), job("run-2", name="ab"))

    assert cell_width(rows[1].partition("running")[0]) == cell_width(rows[2].partition("running")[0])
    assert cut("学习学习", 6) == "学..."
    assert cut_middle("学习学习学习学习学习", 14) == "学...学习学习"
    assert [cell_width(cut_middle("python train.py --lr 1e-3", width)) for width in (3, 11, 12, 20)] == [3, 11, 12, 20]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (187, "3m07s"), (7500, "2h05m"), (273_600, "3d04h"), (-5, "0s")]
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_the_end_of_a_job_in_one_line() -> None:
    ended = job(state=JobState.FAILED, started=NOW - 60, ended=NOW, message="its time limit of 1m00s is over")

    assert end_line(ended) == "run-1 failed after 1m00s: its time limit of 1m00s is over"


def test_a_wait_is_no_time_that_a_job_has_run() -> None:
    ended = job(state=JobState.CANCELLED, ended=NOW - 1, message="stopped by gpusched stop")

    assert end_line(ended) == "run-1 cancelled: stopped by gpusched stop"
    assert time_run(ended, NOW) == "-"
    assert time_run(job(state=JobState.LOST, started=NOW - 60), NOW) == "-"
    assert time_run(job(started=NOW - 60), NOW) == "1m00s"


def test_what_a_job_has_to_do_with_other_hosts_stands_behind_its_workload() -> None:
    def last(**fields: Any) -> str:
        row = table(job("snake-1", workload="snake", **fields))[1]
        return row[row.index("snake", 1) :]

    def host(name: str, connected: int = 3) -> JoinedHost:
        return JoinedHost(host=name, actors=4, connected=connected)

    joins = JoinedJob(endpoint="tcp://lab1:5555", job="snake-9", host="lab2")
    listens: Any = {"listen": "tcp://0.0.0.0:5555"}
    assert last(joins=joins) == "snake, joins snake-9 at tcp://lab1:5555 as lab2"
    assert last(joins=msgspec.structs.replace(joins, host="")) == "snake, joins snake-9 at tcp://lab1:5555"
    assert last(joins=joins, state=JobState.SUCCEEDED) == "snake, joined snake-9 at tcp://lab1:5555 as lab2"
    assert last(**listens) == "snake, listens at tcp://0.0.0.0:5555"
    assert last(**listens, joined=(host("lab2", 1),)) == "snake, and 1 actor of lab2"
    assert last(**listens, joined=(host("a"), host("b"))) == "snake, and 6 actors of a, b"
    assert last(**listens, joined=tuple(map(host, "abcd"))) == "snake, and 12 actors of 4 hosts"
    assert last(**listens, joined=(host("a\x1b[2J"),), state=JobState.FAILED).endswith("and 4 actors of a?[2J")


def test_the_traffic_of_a_host_is_told_in_units_that_can_be_read() -> None:
    one = JoinedHost(host="lab2", actors=1, connected=1, batches=1, bytes=1 << 19)

    assert host_text(one, over=False) == "lab2: 1 of 1 actor, 1 batch, 0.5 MiB"
    much = JoinedHost(host="lab2", actors=9, batches=5_000, bytes=3 << 30, address="::1")
    assert host_text(much, over=True) == "lab2 (::1): 9 actors, 5,000 batches, 3.0 GiB"
    assert host_text(JoinedHost(host="lab2"), over=False) == "lab2: no actor of it has come yet"
