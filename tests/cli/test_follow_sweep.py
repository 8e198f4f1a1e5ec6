"""`gpusched logs -f` of a sweep: every line of every member once, whatever becomes of the daemon meanwhile."""

import os
import signal
import subprocess
from pathlib import Path

from tests.cli.command import Command
from tests.patience import PATIENCE_S, until

PLACES = ("--machine", "4x16GiB", "--fraction", "0.25")
WAITS = """
echo begin {index}
until test -e go{index} || test -e go; do sleep 0.05; done
echo end {index}
printf rest{index}
"""


class Follower:
    """`gpusched logs -f ARRAY`, and what it has printed."""

    def __init__(self, command: Command, array: str, *words: str) -> None:
        self._file = command.home / "followed"
        argv = [*command.argv, "logs", "-f", array, *words]
        with self._file.open("w") as file:
            self.process = subprocess.Popen(argv, stdout=file, stderr=file, env=command.env)

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines()

    def until(self, line: str) -> None:
        until(lambda: line in self.lines(), line)

    def to_its_end(self) -> list[str]:
        assert self.process.wait(PATIENCE_S) == 0, self.lines()
        return self.lines()


def swept(command: Command, where: Path, *words: str, script: str = WAITS) -> str:
    queued = command.run("sweep", "-d", *PLACES, *words, "--", "sh", "-c", script, cwd=where)
    assert queued.returncode == 0, queued.stderr
    return queued.stdout.split()[0]


def living(command: Command, array: str) -> int:
    (found,) = command.jobs(array).values()
    return int(found["array"]["live"])


def each_once(lines: list[str], array: str, numbers: range, end: str) -> None:
    """Each member's lines are there once, in their order, and how the sweep ended stands last."""
    assert lines[-1].startswith(f"{array} {end}"), lines
    width = len(f"[{numbers[-1]}]")
    for number in numbers:
        head = f"[{number}]".ljust(width) + " | "
        own = [line.removeprefix(head) for line in lines if line.startswith(head)]
        assert [line for line in own if not line.startswith("---")] == [
            f"begin {number}",
            f"end {number}",
            f"rest{number}",
        ], lines


def test_all_members_are_followed_as_they_come_to_the_end_of_the_sweep(command: Command, tmp_path: Path) -> None:
    array = swept(command, tmp_path, "--hold", "--array", "5-8", "--at-most", "2")
    follower = Follower(command, array)
    follower.until(f"{array} waits: it is held")
    command.run("release", array)
    follower.until("[6] | begin 6")
    command.run("hold", array)
    for number in (5, 6):
        (tmp_path / f"go{number}").touch()
    until(lambda: living(command, array) == 0, "none lives, and none of those that are left has begun")
    follower.until("[6] | rest6")
    command.run("release", array)
    follower.until("[7] | begin 7")
    (tmp_path / "go").touch()
    each_once(follower.to_its_end(), array, range(5, 9), "succeeded")
    shown = Follower(command, array, "-n", "1").to_its_end()
    assert shown[:-1] == [f"[{number}] | rest{number}" for number in range(5, 9)]


def test_while_the_daemon_is_away_and_back_no_line_is_lost_and_none_comes_twice(
    command: Command, tmp_path: Path
) -> None:
    array = swept(command, tmp_path, "--array", "9-10")
    follower = Follower(command, array)
    for number in (9, 10):
        follower.until(f"[{number}] | begin {number}".replace("[9] ", "[9]  "))
    os.kill(int((command.state / "daemon.lock").read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    each_once(follower.to_its_end(), array, range(9, 11), "succeeded")


def test_a_follower_that_was_halted_while_the_sweep_and_its_daemon_ended_shows_all(
    command: Command, tmp_path: Path
) -> None:
    array = swept(command, tmp_path, "--array", "0-2")
    follower = Follower(command, array)
    follower.until("[2] | begin 2")
    follower.process.send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    command.run("wait", array)
    command.run("daemon", "stop")
    follower.process.send_signal(signal.SIGCONT)
    each_once(follower.to_its_end(), array, range(3), "succeeded")


def test_of_a_resumed_sweep_the_members_that_run_again_are_followed_whatever_its_files_state(
    command: Command, tmp_path: Path
) -> None:
    """The first one runs last: it failed, and waits for a place. The end of the first time is still in its files."""
    script = "test {index} != 0 || test -e mended || exit 3; " + WAITS
    (tmp_path / "go").touch()
    array = swept(command, tmp_path, "--array", "0-2", script=script)
    assert command.run("wait", array).returncode == 1
    (tmp_path / "go").unlink()
    (tmp_path / "mended").touch()
    full = ("--machine", "4x16GiB", "--num-gpus", "4")
    holder = command.run("run", "-d", *full, "--", "sleep", "1000").stdout.split()[0]
    until(lambda: command.jobs(holder)[holder]["state"] == "running", "the machine is full")
    command.run("sweep", "-d", "--resume", array, cwd=tmp_path)
    command.run("daemon", "stop")
    follower = Follower(command, array)
    follower.until("[1] | rest1")
    command.run("stop", "--kill", holder)
    follower.until("[0] | begin 0")
    assert "[0] | end 0" not in follower.lines()
    (tmp_path / "go").touch()
    each_once(follower.to_its_end(), array, range(3), "succeeded")


def test_without_a_daemon_the_logs_of_all_members_and_of_some_are_read_from_their_files(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    array = swept(command, tmp_path, "--name", "grid", "--array", "0-2")
    command.run("wait", array)
    command.run("daemon", "stop")
    shown = command.run("logs", array)
    assert shown.returncode == 0, shown.stderr
    assert [line for line in shown.stdout.splitlines() if "rest" in line] == [
        "[0] | rest0",
        "[1] | rest1",
        "[2] | rest2",
    ]
    for name in (f"{array}[1-]", "grid[1-2]"):
        assert list(command.jobs(name)) == [f"{array}[1]", f"{array}[2]"]
    assert command.run("ps", f"{array}[3]").returncode == 4
    assert command.running() == [], "and no daemon is started for it"
