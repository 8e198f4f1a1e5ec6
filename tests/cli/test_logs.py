"""`gpusched logs`: what the processes of a job have written, and go on to write."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched.execution.job_logs import LogTail
from tests.cli.command import Command
from tests.cli.queue import GPUSCHED, ONE_GPU, jobs, queue, until_state
from tests.patience import PATIENCE_S, until

LINES = ("--num-gpus", "0", "--", "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; done; printf end")


def launched(command: Command, script: str = "for_ever.py") -> str:
    told = command.run("launch", "-d", command.toy(script, memory=False))
    assert told.returncode == 0, told.stderr
    assert told.stdout == "toy-1\n"
    return "toy-1"


def test_the_log_of_one_process_is_printed_as_it_is(command: Command) -> None:
    name = queue(command, *LINES)
    command.run("wait", name)

    whole = command.run("logs", name).stdout
    assert whole.startswith("--- command.0, attempt 0, ")
    assert whole.endswith(" ---\nline 1\nline 2\nline 3\nline 4\nline 5\nend")
    assert command.run("logs", name, "--lines", "2").stdout == "line 5\nend"
    assert command.run("logs", name, "-n", "0").stdout == ""


def test_of_a_bar_that_redraws_its_line_the_last_state_is_printed_and_all_where_it_is_followed(
    command: Command,
) -> None:
    script = "i=0; while [ $i -lt 300 ]; do printf 'step %d/300\\r' $i; i=$((i+1)); done; printf 'done\\r\\nlast\\rend'"
    name = queue(command, "--num-gpus", "0", "--", "sh", "-c", script)
    command.run("wait", name)
    plain = [*GPUSCHED, "logs", name]

    def shown(*words: str) -> bytes:
        return subprocess.run([*plain, *words], env=command.env, capture_output=True, check=True).stdout

    assert shown().partition(b" ---\n")[2] == b"done\r\nend"
    assert shown("--lines", "2") == b"done\r\nend"
    assert shown("-f").count(b"step ") == 300
    assert [json.loads(line)["line"] for line in shown("--json").splitlines()][1:] == ["done\r", "end"]


def test_several_processes_are_told_apart(command: Command) -> None:
    name = launched(command, "fails.py")
    command.run("wait", name)

    heads = {line.partition(" | ")[0].strip() for line in command.run("logs", name).stdout.splitlines()}
    one = command.run("logs", name, "--replica", "actor.1").stdout

    assert heads == {"learner.0", "actor.0", "actor.1"}
    assert " | " not in one
    assert one.startswith("--- actor.1, attempt 0")


def test_each_line_as_json(command: Command) -> None:
    name = queue(command, *LINES)
    command.run("wait", name)

    told = [json.loads(line) for line in command.run("logs", name, "--json").stdout.splitlines()]

    assert told[-1] == {"replica": "command.0", "line": "end"}
    assert [one["line"] for one in told[1:3]] == ["line 1", "line 2"]


def test_an_unknown_replica_is_told_with_those_that_there_are(command: Command) -> None:
    name = launched(command)
    until_state(command, name, "running")
    told = command.run("logs", name, "--replica", "actor.7")

    assert told.returncode == 4
    assert "learner.0, actor.0, actor.1" in told.stderr


def test_what_has_no_log_is_told(command: Command) -> None:
    command.run("run", "--num-gpus", "0", "--", "true")
    waits = queue(command, "--hold", *LINES)

    assert "went where gpusched run was typed" in command.run("logs", "run-1").stderr
    assert "it is queued" in command.run("logs", waits).stderr
    assert command.run("logs", "run-9").returncode == 4


def test_it_follows_from_the_queue_to_the_end_and_says_how_it_ended(command: Command) -> None:
    name = queue(command, "--hold", "--num-gpus", "0", "--", "sh", "-c", "echo one; sleep 0.3; echo two; exit 3")
    follower = command.start("logs", "-f", name)
    assert follower.stdout is not None
    assert follower.stdout.readline() == f"{name} waits: it is held\n"

    command.run("release", name)
    said, _ = follower.communicate(timeout=PATIENCE_S)

    assert follower.returncode == 0
    assert "---\none\ntwo\n" in said
    assert f"{name} failed: code 3 after " in said


def test_it_says_what_a_job_waits_for(command: Command) -> None:
    queue(command, *ONE_GPU, "--", "sleep", "1000")
    until_state(command, "run-1", "running")
    name = queue(command, *ONE_GPU, "--", "true")
    until(lambda: "needs" in str(jobs(command)[name]["why"]), "a pass has seen it")
    follower = command.start("logs", "-f", name)

    assert follower.stdout is not None
    assert "run-2 waits: needs 1 whole GPU" in follower.stdout.readline()
    follower.kill()
    follower.communicate()


def test_a_restarted_process_is_followed_into_its_next_attempt(command: Command) -> None:
    workload = command.home / "again.toml"
    script = "import os; n = os.environ['GPUSCHED_ATTEMPT']; print('attempt', n); raise SystemExit(n == '0')"
    workload.write_text(
        f'name = "again"\n[roles.one]\ncommand = ["{sys.executable}", "-S", "-c", "{script}"]\n'
        'restart = { policy = "on-failure", max = 3 }\n'
    )
    assert command.run("launch", "-d", str(workload)).returncode == 0

    said = command.run("logs", "-f", "again-1")

    assert "attempt 0\n" in said.stdout
    assert "attempt 1\n" in said.stdout
    assert "again-1 succeeded" in said.stderr


def test_it_survives_a_restart_of_the_daemon(command: Command) -> None:
    flag = command.home / "go"
    script = f"echo one; until [ -e {flag} ]; do sleep 0.05; done; echo two"
    name = queue(command, "--num-gpus", "0", "--", "sh", "-c", script)
    follower = command.start("logs", "-f", name)
    assert follower.stdout is not None
    assert "---" in follower.stdout.readline()
    assert follower.stdout.readline() == "one\n"

    os.kill(command.daemon(), signal.SIGKILL)
    flag.touch()

    assert follower.stdout.readline() == "two\n"
    assert f"{name} succeeded" in follower.stdout.readline()
    assert follower.wait(PATIENCE_S) == 0


def test_a_program_that_writes_faster_than_it_is_read_does_not_keep_it_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\n" * 100_000)

    read = 0
    for piece in LogTail(log, None).pieces():
        with log.open("ab") as file:
            file.write(piece * 2)
        read += len(piece)

    assert read == 400_000


@pytest.mark.parametrize("words", [(), ("-f",)])
def test_a_reader_that_has_enough_ends_it_quietly(words: tuple[str, ...], command: Command) -> None:
    script = "yes | head -c 20000000; sleep 1000"
    name = queue(command, "--num-gpus", "0", "--", "sh", "-c", script)
    log = command.state / "jobs" / name / "logs" / "command.0.log"
    until(lambda: log.exists() and log.stat().st_size > 20_000_000, "it has written more than a pipe holds")

    reader = command.start("logs", *words, name)
    assert reader.stdout is not None
    reader.stdout.readline()
    reader.stdout.close()

    assert reader.wait(PATIENCE_S) == 0
