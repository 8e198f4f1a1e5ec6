"""What a person is told who mistypes, or types what no message can hold: clear words, in one line, with a way out."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.command import Command
from tests.cli.queue import SLEEP, queue, until_state
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_S
from tests.stand_in.library import FOUR_V100, StandIn


@pytest.mark.parametrize(
    ("words", "told", "hint"),
    [
        (("plan", "--prcs", "3"), "No such option: --prcs", "gpusched plan --help"),
        (("plan", "--prcs=3"), "No such option: --prcs", "for the options of snake gpusched plan -- --help"),
        (("launch", "snake", "--prcs", "3"), "No such option: --prcs", "gpusched launch snake --help"),
        (("plan", "three"), "'three' belongs to no option", "gpusched plan --help"),
        (("plan", "snake", "--procs", "3"), "'snake' belongs to no option", "gpusched plan --workload snake"),
        (("launch", "snaek"), "there is no workload 'snaek'", "did you mean snake?"),
        (("launch", "train.py"), "train.py is a program, and no workload", "gpusched run -- python train.py"),
        (("plan", "--machine", "2xA100"), "'A100' is not an amount of memory", "an A100 of 80 GiB is 1x80GiB"),
        (("run", "-d", "--num-gpus", "0", "--notify", "--", "true"), "--notify: '--' is an option", "give a command"),
        (("plan", "--procs"), "'--procs' requires an argument", "gpusched plan --help"),
        (("daemon",), "Choose from: run, start, stop", "gpusched daemon --help"),
        (("pz",), "No such command 'pz'", "see gpusched --help"),
        (("run", "-d", "--priority", "high", "true"), "'high' is not a whole number", "gpusched run --help"),
        (("run", "-d", "--fraction", "2", "true"), "--fraction: '2' is not a fraction", "at most 1, such as 0.4"),
        (
            ("run", "-d", "--num-gpus", "0", "--name", "x" * 201, "true"),
            "--name: 201 characters are too many",
            "at most 200",
        ),
    ],
)
def test_wrong_usage_names_the_trouble_and_where_to_read(
    words: tuple[str, ...], told: str, hint: str, command: Command
) -> None:
    result = command.run(*words)

    assert result.returncode == 2
    message, way_out = result.stderr.splitlines()
    assert told in message
    assert hint in way_out


@pytest.mark.parametrize(("typed", "code"), [("train.py", 127), ("./train.py", 126)])
def test_a_python_file_is_no_program_but_one_for_python(typed: str, code: int, command: Command) -> None:
    (command.home / "train.py").write_text("print('it trains')\n")
    told = command.run("run", "-d", "--num-gpus", "0", "--cwd", str(command.home), "--", typed)
    assert (told.returncode, f"gpusched run -- python {typed}" in told.stderr) == (code, True)


def test_jobs_with_commas_between_them_are_no_job(command: Command) -> None:
    queue(command, "--hold", *SLEEP)
    told = command.run("run", "-d", "--num-gpus", "0", "--after", "run-1,run-2", "--", "true")
    assert (told.returncode, "without commas" in told.stderr) == (4, True)


@pytest.mark.parametrize("name", ["", "x" * 129])
@pytest.mark.parametrize("asks", ["ps", "logs", "wait", "stop", "hold", "release"])
def test_what_can_be_no_job_is_no_job(asks: str, name: str, command: Command) -> None:
    command.daemon()
    result = command.run(asks, name)

    assert result.returncode == 4
    assert "there is no job" in result.stderr


def test_a_word_that_is_not_utf_8_is_told_and_is_no_internal_error(command: Command) -> None:
    for words in ((b"run", b"-d", b"--num-gpus", b"0", b"--", b"echo", b"caf\xe9"), (b"ps", b"caf\xe9")):
        argv = [os.fsencode(sys.executable), b"-m", b"gpusched", *words]
        command.daemon()
        result = subprocess.run(argv, capture_output=True, text=True, env=command.env, timeout=PATIENCE_S, check=False)

        assert result.returncode == 2
        assert "'caf\\udce9' is not UTF-8" in result.stderr


def test_no_message_moves_the_cursor(command: Command) -> None:
    command.daemon()
    result = command.run("logs", "run\x1b[2J\n\x07")

    assert result.stderr.splitlines()[0] == "gpusched: no job matches run?[2J??"


def test_a_device_to_drain_is_looked_for_by_its_own_name(command: Command, stand_in: StandIn) -> None:
    command.env |= stand_in.host(FOUR_V100).variables
    command.daemon()

    unknown = command.run("daemon", "drain", "9")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("gpusched: drain: there is no device '9'\n  hint: there is: 0 (")
    assert command.run("daemon", "drain", "3", "--reason", "its fan is broken").returncode == 0
    assert "GPU 3 takes no replica: it is drained since " in command.run("plan", "--procs", "1").stdout


def test_without_a_device_there_is_nothing_to_drain(command: Command, stand_in: StandIn) -> None:
    command.env |= stand_in.host("gpus 0\n").variables
    told = command.run("daemon", "drain", "0")

    assert told.returncode == 2
    assert "has no GPU" in told.stderr


def test_a_daemon_that_is_started_is_told_from_one_that_runs(command: Command) -> None:
    assert command.run("daemon", "start").stdout == "the daemon has been started\n"
    assert command.run("daemon", "start").stdout == "a daemon runs already\n"
    assert command.run("daemon", "start", "--kill").returncode == 2
    assert command.run("daemon", "stop").returncode == 0
    assert "there is nothing to stop" in command.run("daemon", "stop").stderr


def test_what_follows_a_failed_job_says_so_in_english(command: Command) -> None:
    assert command.run("run", "--num-gpus", "0", "--", "false").returncode == 1
    queue(command, "--num-gpus", "0", "--after", "run-1", "--", "true")
    until_state(command, "run-2", "cancelled")

    assert "run-1, which it was to follow, has failed" in command.run("ps", "--why").stdout
    assert command.run("hold", "run-1").stderr.startswith("gpusched: run-1 has failed: ")
    assert command.run("logs", "run-2").stderr.startswith("gpusched: run-2 has no log: it was cancelled\n")


def test_a_job_whose_time_is_over_says_so_in_its_state(command: Command) -> None:
    queue(command, "--num-gpus", "0", "--time-limit", "1s", "--", "sleep", "1000")
    until_state(command, "run-1", "failed")

    assert "failed: time limit" in command.run("ps").stdout


def test_the_shell_completes_workloads_policies_and_jobs(command: Command) -> None:
    queue(command, "--hold", *SLEEP)
    for line, wanted in (("launch sn", "snake"), ("plan --policy sp", "spread"), ("stop ru", "run-1")):
        words = f"gpusched {line}"
        asked = {"_GPUSCHED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        argv = [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'gpusched'; from gpusched.cli.main import main; main([])",
        ]
        told = subprocess.run(
            argv, capture_output=True, text=True, env={**command.env, **asked}, timeout=PATIENCE_S, check=False
        )

        assert told.stdout.split() == [wanted], line


@pytest.mark.parametrize("files", [8, 16])
def test_where_too_few_files_may_be_open_no_directory_is_blamed(files: int, command: Command) -> None:
    few = Command(command.home, within=("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"))

    told = few.run("run", "-d", "--num-gpus", "0", "--", "true")

    assert "Too many open files" in told.stderr
    assert told.stderr.splitlines()[1] == "  hint: this shell lets a process open too few files: ulimit -n 1024"


@pytest.mark.parametrize("files", [5, 7, 8, 9])
@pytest.mark.parametrize("words", [("ps",), ("wait", "run-1")])
def test_where_too_few_files_may_be_open_a_daemon_that_answers_makes_no_traceback(
    words: tuple[str, ...], files: int, command: Command
) -> None:
    assert command.run("run", "--num-gpus", "0", "--", "true").returncode == 0
    few = Command(command.home, within=("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"))

    told = few.run(*words)

    assert told.returncode == 5
    assert "Traceback" not in told.stderr
    assert told.stderr.splitlines()[1] == "  hint: this shell lets a process open too few files: ulimit -n 1024"


@pytest.mark.parametrize("files", [8, 16])
@pytest.mark.parametrize(
    "words",
    ["run -d -- true", "wait run-1", "stop run-1", "hold run-1", "daemon start", "daemon status", "ps", "status"],
)
def test_where_too_few_files_may_be_open_what_json_was_asked_of_prints_json(
    words: str, files: int, command: Command
) -> None:
    first, *rest = words.split()
    few = Command(command.home, within=("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"))

    told = few.run(
        first, *(rest[:1] if first == "daemon" else ()), "--json", *(rest[1:] if first == "daemon" else rest)
    )

    document = json.loads(told.stdout)
    assert (told.returncode == 0) == ("error" not in document)
    assert told.stderr == ""


def test_replicas_that_are_too_many_to_be_forked_at_once_are_executed(command: Command) -> None:
    (command.home / "toy.py").write_text("pass\n")
    (command.home / "toy.toml").write_text("""
        name = "toy"
        [roles.actor]
        count = 8
        command = ["{python}", "toy.py"]
        [job]
        leader = "actor"
        preload = ["decimal"]
    """)
    few = Command(command.home, within=("sh", "-c", 'ulimit -n 30; exec "$@"', "sh"))

    told = few.run("launch", "toy.toml", cwd=command.home)

    log = (command.state / "jobs" / "toy-1" / "logs" / "supervisor.log").read_text()
    assert (told.returncode, "8 replicas are executed, not forked: Too many open files" in log) == (0, True), log


def test_doctor_finds_that_too_few_files_may_be_open(command: Command) -> None:
    assert command.run("run", "--num-gpus", "0", "--", "true").returncode == 0
    few = Command(command.home, within=("sh", "-c", 'ulimit -n 8; exec "$@"', "sh"))

    told = few.run("doctor", "--json")

    assert told.returncode == 5, told.stderr
    assert "open-files" in {each["check"] for each in json.loads(told.stdout)["findings"] if each["state"] == "error"}


def test_the_list_of_commands_names_all_that_export_writes(command: Command) -> None:
    told = " ".join(command.run("--help").stdout.split())

    assert all(kind in told for kind in ("Kubernetes", "Compose", "Slurm"))


@pytest.mark.parametrize(("asks", "last"), [("doctor", "daemon"), ("ps", "sleep 1000"), ("status", "release run-1")])
def test_a_terminal_without_a_name_gets_no_escape_sequences(asks: str, last: str, command: Command) -> None:
    queue(command, "--hold", *SLEEP)
    window = Terminal([sys.executable, "-m", "gpusched", asks], command.env | {"TERM": ""})
    try:
        assert "\x1b" not in window.see(last)
    finally:
        window.close()
