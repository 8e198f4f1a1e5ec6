"""`gpusched sweep` and `gpusched results`, as they are typed."""

import json
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.cli.queue import until_state
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_S, until

PLACES = ("--machine", "p3.8xlarge", "--fraction", "0.25")
REPORTS = """
test $2 = 2 && test ! -e fixed && exit 3
echo "{\\"score\\": $2$1}" >> $GPUSCHED_RUN_DIR/progress.jsonl
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "member.sh"
    path.write_text(REPORTS)
    return str(path)


def as_json(command: Command, *words: str) -> Any:
    return json.loads(command.run(*words, "--json").stdout)


def test_a_sweep_runs_all_combinations_and_its_results_are_by_score_and_can_be_resumed(
    command: Command, script: str, tmp_path: Path
) -> None:
    words = ("--param", "lr=1,5", "--param", "seed=1,2..2", "--at-most", "2")
    swept = command.run("sweep", *PLACES, *words, "--", "sh", script, "{lr}", "{seed}", cwd=tmp_path)
    assert (swept.returncode, swept.stdout) == (1, "run-1\n")
    assert "run-1 failed" in swept.stderr
    (array,) = as_json(command, "ps")["jobs"]
    assert (array["array"]["succeeded"], array["array"]["failed"], array["state"]) == (2, 2, "failed")
    assert "4/4, 2 failed" in command.run("ps").stdout
    assert command.run("logs", "run-1[0]").stdout.startswith("--- command.0, attempt 0")
    assert command.run("logs", "run-1").stdout.count("attempt 0") == 4

    (tmp_path / "fixed").touch()
    assert command.run("sweep", "--resume", "run-1", cwd=tmp_path).returncode == 0
    found = as_json(command, "results", "run-1")
    scores = [(one["parameters"]["seed"], one["parameters"]["lr"], one["score"]) for one in found["members"]]
    assert scores == [("2", "5", 25), ("2", "1", 21), ("1", "5", 15), ("1", "1", 11)]
    head, first, *_ = command.run("results", "run-1", "--csv").stdout.splitlines()
    assert head == "member,lr,seed,state,seconds,score,message"
    assert first.startswith("3,5,2,succeeded,")
    shown = command.run("results", "--last").stdout
    assert "MEAN SCORE" in shown
    assert shown.index("[3]") < shown.index("[0]")


def test_the_rows_of_a_file_and_numbers_are_members_too(command: Command, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text('a,b\n1,x y\n2,"z,w"\n')
    command.run("sweep", "--num-gpus", "0", "--from", str(table), "--", "echo", "{a}", "is", "{b}")
    lines = command.run("logs", "run-1").stdout.splitlines()
    assert [line for line in lines if " is " in line] == ["[0] | 1 is x y", "[1] | 2 is z,w"]
    command.run("sweep", "--num-gpus", "0", "--array", "5-6", "--", "sh", "-c", "echo {index} $GPUSCHED_INDEX {other}")
    lines = command.run("logs", "run-2").stdout.splitlines()
    assert [line for line in lines if "other" in line] == ["[5] | 5 5 {other}", "[6] | 6 6 {other}"]


def test_a_workload_is_swept_over_its_own_options(command: Command) -> None:
    words = ("averaging", "--machine", "cpu", "--procs", "1", "--param", "rounds=2,3", "-d")
    queued = as_json(command, "sweep", *words)
    assert (queued["id"], queued["parameters"]) == ("averaging-1", {"rounds": ""})
    assert command.run("wait", "averaging-1").returncode == 0
    found = as_json(command, "results", "averaging-1")["members"]
    assert sorted(one["parameters"]["rounds"] for one in found) == ["2", "3"]
    assert {one["report"]["step"] for one in found} == {2, 3}


def test_ctrl_c_ends_the_view_and_not_the_sweep(command: Command) -> None:
    view = command.start("sweep", "--num-gpus", "0", "--array", "1-2", "--", "sleep", "600")
    until(lambda: [one["state"] for one in as_json(command, "ps")["jobs"]] == ["running"], "it runs")
    assert view.stdout is not None
    assert view.stdout.readline(), "it is queued, and this command knows that"
    view.send_signal(signal.SIGINT)
    text, _ = view.communicate()
    assert view.returncode == 130
    assert "run-1 goes on" in text
    assert as_json(command, "ps")["jobs"][0]["state"] == "running"


def test_in_a_narrow_terminal_its_one_line_stays_one_and_is_written_when_it_changes(command: Command) -> None:
    command.env.pop("COLUMNS", None)
    words = ("sweep", "--num-gpus", "0", "--array", "1-2", "--", "sleep", "1.6")
    terminal = Terminal([*command.argv, *words], command.env, columns=20)
    lines = terminal.see("run-1 succeeded").split("\r\x1b[K")[1:-1]
    assert terminal.process.wait(PATIENCE_S) == 0
    assert lines
    assert all(len(line) < 20 for line in lines), lines
    assert all(line != after for line, after in pairwise(lines)), lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a sweep needs parameters or numbers of members"),
        (("--param", "a=1", "--array", "1-2", "--", "echo", "{a}"), "a sweep needs parameters or numbers of members"),
        (("--param", "a", "--", "echo", "{a}"), "'a' has no values"),
        (("--param", "a=1", "--param", "a=2", "--", "echo", "{a}"), "'a' is given twice"),
        (("--param", "a=9..1", "--", "echo", "{a}"), "the first number is above the last"),
        (("--param", "a=1,2", "--", "echo", "b"), "the command has no {a}"),
        (("--param", "index=1,2", "--", "echo", "{index}"), "{index} is the number of the member"),
        (("--param", "a=0..2000000", "--", "echo", "{a}"), "a sweep of 2,000,001 members"),
        (("--param", f"a=1,0..{10**30}", "--", "echo", "{a}"), ",002 values"),
        (("--array", "1-2"), "nothing to run is named"),
        (("--array", "2-1", "--", "true"), "these are no numbers of members"),
        (("--array", "1-2", "--procs", "3", "--", "true"), "--procs is for a sweep of a workload"),
        (("averaging", "--param", "rounds=2", "--fraction", "0.5"), "--fraction is for a sweep of a command"),
        (("averaging", "--param", "speed=2"), "averaging has no option 'speed'"),
        (("averaging", "--param", "rounds=often"), "an option of averaging"),
        (("snake", "--param", "inference=actor,learner"), "inference changes what snake needs"),
        (("--from", "/nowhere.csv", "--", "true"), "--from /nowhere.csv: No such file"),
        (("--resume", "run-9", "--at-most", "2"), "--resume is for a sweep as it is"),
        (("--resume", "run-9", "--fraction", "0.5"), "--resume is for a sweep as it is"),
        (("--resume", "run-9"), "there is no job run-9"),
        (("--array", "2000000-2000002", "--", "true"), "are no numbers of members"),
    ],
)
def test_what_cannot_be_swept_is_refused_with_the_reason_and_nothing_is_queued(
    command: Command, words: tuple[str, ...], message: str
) -> None:
    refused = command.run("sweep", *words)
    assert refused.returncode in (2, 4), refused.stderr
    assert message in refused.stderr
    assert "hint:" in refused.stderr
    assert as_json(command, "ps")["jobs"] == []


def test_members_of_a_python_command_are_forked_from_what_is_preloaded(command: Command, tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import os\nprint('imported by', os.getpid())")
    (tmp_path / "member.py").write_text("import sys\nprint('here', 'heavy' in sys.modules, sys.argv[1:])\nimport heavy")
    words = (
        "--num-gpus",
        "0",
        "--param",
        "lr=1..4",
        "--preload",
        "heavy",
        "--",
        sys.executable,
        "member.py",
        "--lr",
        "{lr}",
    )
    assert command.run("sweep", *words, cwd=tmp_path).returncode == 0
    lines = [line for line in command.run("logs", "run-1").stdout.splitlines() if "---" not in line]
    assert lines == [f"[{number}] | here True ['--lr', '{number + 1}']" for number in range(4)]
    assert (tmp_path / "state" / "jobs" / "run-1" / "logs" / "zygote.log").read_text().count("imported by") == 1


@pytest.mark.parametrize("python", ["bin/python", "./lib/../bin/python"])
def test_the_python_of_a_preload_may_be_named_from_where_the_command_is_typed(
    command: Command, tmp_path: Path, python: str
) -> None:
    script = tmp_path / "member.py"
    script.write_text("import sys\nprint('json' in sys.modules, sys.argv[1:])")
    words = ("--num-gpus", "0", "--param", "lr=1,2", "--preload", "json", "--", python, str(script), "{lr}")
    assert command.run("sweep", *words, cwd=Path(sys.prefix)).returncode == 0
    lines = [line for line in command.run("logs", "run-1").stdout.splitlines() if "---" not in line]
    assert lines == [f"[{number}] | True ['{number + 1}']" for number in range(2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--preload", "json", "--", "sh", "a.sh", "{lr}"), "is no script or module that"),
        (("--preload", "json", "--", "python", "-c", "{lr}"), "is no script or module that"),
        (
            ("--preload", "no_such_module", "--", sys.executable, "a.py", "{lr}"),
            "there is no module 'no_such_module' here",
        ),
        (("--preload", "a b", "--", sys.executable, "a.py", "{lr}"), "'a b' is no name of a module"),
        (("--preload", "json", "snake"), "preload is for a sweep of a command"),
    ],
)
def test_a_preload_that_no_member_could_have_is_refused(command: Command, words: tuple[str, ...], message: str) -> None:
    refused = command.run("sweep", "--param", "lr=1,2", *words)
    assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


def test_why_nothing_is_preloaded_stands_under_the_sweep(command: Command, tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import threading, time\nthreading.Thread(target=time.sleep, args=(5,)).start()")
    (tmp_path / "member.py").write_text("")
    words = ("--num-gpus", "0", "--array", "1-2", "--preload", "heavy", "--", sys.executable, "member.py", "{index}")
    swept = command.run("sweep", *words, cwd=tmp_path)
    assert swept.returncode == 0
    (array,) = as_json(command, "ps")["jobs"]
    assert array["message"].startswith("nothing is preloaded: after the import of heavy it cannot be forked")
    assert array["message"] in swept.stderr


def test_a_sweep_that_runs_is_among_what_is_held_released_and_edited_by_a_glob_or_its_group(command: Command) -> None:
    words = ("--group", "sweeps", "--at-most", "1", "--num-gpus", "0", "--array", "0-3", "--", "sleep", "600")
    command.run("sweep", "-d", *words)
    until_state(command, "run-1", "running")
    assert command.run("hold", "--group", "sweeps").stdout == "run-1 is held\n"
    assert command.run("release", "run-*").stdout == "run-1 is queued\n"
    assert command.run("edit", "run-*", "--priority", "5").stdout == "run-1 is changed\n"
