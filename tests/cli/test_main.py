"""The entry point: exit codes, one message, and nothing imported that the command does not need."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched.cli.main import COMMANDS
from tests.cli.command import Command

P3 = ("--machine", "p3.8xlarge")


def test_every_command_has_help_with_an_example(command: Command) -> None:
    for name in COMMANDS:
        told = command.run(name, "--help")

        assert told.returncode == 0
        assert f"gpusched {name}" in " ".join(told.stdout.split()).partition("Example: ")[2]


def test_help_lists_the_commands(command: Command) -> None:
    told = command.run("--help").stdout

    assert all(name in told for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plna",), 2),
        (("plan", "--machin", "p3.8xlarge"), 2),
        (("plan", "--procs"), 2),
        (("plan", "--policy", "best", *P3), 2),
        (("launch",), 2),
        (("launch", "no-such-workload"), 2),
        (("launch", "no/such/file.toml"), 2),
        (("launch", "snake", "--priority", "3"), 2),
        (("launch", "snake", "-d", "--dry-run"), 2),
        (("launch", "snake", "--insecure"), 2),
        (("new",), 2),
        (("new", "No-Name"), 2),
        (("export",), 2),
        (("export", "kubernetes"), 2),
        (("export", "kubernetes", "snake", "--share-resource", "mig", *P3), 2),
        (("join",), 2),
        (("join", "tcp://127.0.0.1:5555"), 2),
        (("keys",), 2),
        (("keys", "new", "snake-1"), 2),
        (("keys", "list", "snake-1", "lab2"), 2),
        (("run",), 2),
        (("wait",), 2),
        (("stop",), 2),
        (("ps", "--ended", "-1"), 2),
    ],
)
def test_wrong_usage_is_one_message_and_code_2(words: tuple[str, ...], code: int, command: Command) -> None:
    plain = command.run(*words)
    told = command.run(*words, "--json")

    assert (plain.returncode, told.returncode) == (code, code)
    assert plain.stderr.startswith("gpusched: ")
    assert "Traceback" not in plain.stderr + told.stderr
    error = json.loads(told.stdout)["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["message"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("delete",), "gpusched rm JOB"),
        (("retry",), "gpusched rerun JOB"),
        (("kill", "run-1"), "gpusched stop JOB"),
        (("cancel",), "gpusched stop JOB"),
        (("queue",), "gpusched ps"),
        (("launch", "snake", "--proc", "3"), "(Possible options: --procs"),
        (("launch", "snake", "--minute", "3"), "(Possible options: --minutes)"),
        (("plan", "--proc", "3"), "(Possible options: --procs"),
        (("export", "compose", "averaging", "--tsk", "digits"), "(Possible options: --task)"),
        (("launch", "--minutes", "3", "snake"), "name the workload first"),
        (("launch", "averaging", "--rounds", "x"), "see gpusched launch averaging -- --help"),
        (
            ("plan", "--workload", "averaging", "--", "--rounds", "x"),
            "see gpusched plan --workload averaging -- --help",
        ),
        (("export", "compose", "averaging", "--rounds", "x"), "see gpusched export compose averaging -- --help"),
    ],
)
def test_a_word_that_is_near_ours_leads_to_it(words: tuple[str, ...], hint: str, command: Command) -> None:
    told = command.run(*words)

    assert (told.returncode, told.stdout) == (2, "")
    assert hint in told.stderr


@pytest.mark.parametrize("words", [("help",), ("help", "launch")])
def test_help_is_a_word_too(words: tuple[str, ...], command: Command) -> None:
    told = command.run(*words)
    assert (told.returncode, told.stdout) == (0, command.run(*words[1:], "--help").stdout)


@pytest.mark.parametrize("near", ["--workloads", "--contexts"])
def test_what_has_no_name_on_the_command_line_is_no_possible_option(near: str, command: Command) -> None:
    assert "Possible options" not in command.run("launch", "snake", near, "3").stderr


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/dev/null", 126)])
def test_a_command_that_is_no_program_is_an_error_in_json(program: str, code: int, command: Command) -> None:
    told = command.run("run", "-d", "--num-gpus", "0", "--json", "--", program)

    assert (told.returncode, told.stderr) == (code, "")
    assert json.loads(told.stdout)["error"]["message"].startswith(f"{program}: ")


@pytest.mark.parametrize(
    ("words", "as_json"),
    [
        ("-d --memory nonsense --json true", True),
        ("--memory nonsense -d --json true", True),
        ("--memory nonsense -d --json -- true", True),
        ("--memory=nonsense --name mine --json", True),
        ("--memory --json true", True),
        ("--memory nonsense -d true --json", False),
        ("--memory nonsense -d true --json -- x", False),
        ("--memory nonsense -d -- true --json", False),
        ("--memory nonsense --name --json true", True),
        ("--memroy 4GiB --json -- true", True),
        ("--time_limit 3 --json -- true", True),
        ("--detatch ./evaluate --json", True),  # a guess: it could be a value
        ("--priority -5 --memory nonsense true --json", False),
    ],
)
def test_an_error_of_run_is_json_if_that_was_asked_of_us_and_not_of_the_command(
    words: str, as_json: bool, command: Command
) -> None:
    told = command.run("run", *words.split())

    assert told.returncode == 2
    assert (told.stdout.startswith('{"error": '), told.stderr == "") == (as_json, as_json)


@pytest.mark.parametrize(
    ("text", "line"), [("x = 1\n[a", 2), ("most_jobs = ", 1), ("x = [1,\n2,\n\n", 2), ("a = 1\nb", 2)]
)
def test_a_configuration_that_is_no_toml_is_told_with_the_line(text: str, line: int, command: Command) -> None:
    (command.home / "config.toml").write_text(text)
    command.env["GPUSCHED_CONFIG"] = str(command.home / "config.toml")
    told = command.run("plan")

    assert told.returncode == 2
    assert f"{command.home / 'config.toml'}: " in told.stderr
    assert f"(at line {line}, " in told.stderr


def test_a_default_machine_is_what_plan_launch_and_run_mean_until_this_host_is_named(command: Command) -> None:
    (command.home / "config.toml").write_text('default_machine = "2x16GiB"')
    command.env["GPUSCHED_CONFIG"] = str(command.home / "config.toml")

    plan = ("plan", "--procs", "2")

    assert json.loads(command.run(*plan, "--json").stdout)["source"] == "profile"
    assert json.loads(command.run(*plan, "--machine", "here", "--json").stdout)["source"] == "cpu"
    assert json.loads(command.run(*plan, "--machine", "1x16GiB", "--json").stdout)["counts"] == [3]
    assert "would start now: 3" in command.run("launch", "snake", "--procs", "2", "--dry-run").stdout
    job = json.loads(command.run("run", "-d", "--json", "--", "true").stdout)
    assert (job["simulated"], job["machine"]) == (True, "2x16GiB")
    assert command.run("run", "--machine", "here", "--", "true").returncode == 3
    assert not json.loads(command.run("run", "-d", "--json", "--num-gpus", "0", "--", "true").stdout)["simulated"]
    assert command.run("run", "--num-gpus", "0", "--machine", "here", "--", "true").returncode == 0
    assert json.loads(command.run("status", "--machine", "here", "--json").stdout)["source"] == "cpu"
    assert command.run("export", "compose", "averaging", "--machine", "here").returncode == 0
    assert "default_machine is 2x16GiB" in command.run("status").stdout
    assert "default_machine" not in json.loads(command.run("status", "--json").stdout)
    command.end()


def test_a_default_machine_that_is_not_known_is_told_as_the_configurations(command: Command) -> None:
    (command.home / "config.toml").write_text('default_machine = "no-such"')
    command.env["GPUSCHED_CONFIG"] = str(command.home / "config.toml")
    told = command.run("plan")

    assert told.returncode == 2
    assert "mend default_machine in the configuration" in told.stderr


BROKEN = """
import sys
class Broken:
    def find_spec(self, name, *_):
        if name == "msgspec": raise RuntimeError("broken on purpose")
sys.meta_path.insert(0, Broken())
"""


def test_an_unexpected_error_is_told_in_one_line_and_kept_in_a_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    command.env |= {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}

    told = command.run("plan", *P3)

    kept = list(tmp_path.glob("gpusched-crash-*.txt"))
    assert told.returncode == 1
    assert "internal error: RuntimeError: broken on purpose" in told.stderr
    assert "Traceback" not in told.stderr
    assert len(kept) == 1
    assert str(kept[0]) in told.stderr
    assert "Traceback" in kept[0].read_text()


def test_an_unexpected_error_is_told_even_where_nothing_can_be_kept(command: Command, tmp_path: Path) -> None:
    nowhere = "def nowhere(**_): raise FileNotFoundError(2, 'no directory')"
    lines = (BROKEN, "import tempfile", nowhere, "tempfile.NamedTemporaryFile = lambda *_, **__: nowhere()")
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    command.env["PYTHONPATH"] = str(tmp_path)

    told = command.run("plan", *P3)

    assert told.returncode == 1
    assert "internal error: RuntimeError: broken on purpose" in told.stderr
    assert "sitecustomize.py, line 5" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("words", "redirected", "code", "shown"),
    [
        ("plan --machine p3.8xlarge --json", "| head -n 1", 0, "{\n"),
        ("status", "| true", 0, ""),
        ("plan --machine nope --json", "| true", 2, ""),
        ("status", "> /dev/full", 5, ""),
        ("plan --machine nope --json", "> /dev/full", 2, ""),
        ("status", ">&-", 0, ""),
    ],
)
def test_the_code_stands_and_nothing_breaks_when_the_output_cannot_be_written(
    words: str, redirected: str, code: int, shown: str, command: Command, tmp_path: Path
) -> None:
    line = f"{{ {shlex.quote(sys.executable)} -m gpusched {words}; echo $? >code; }} {redirected}"

    told = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, env=command.env, cwd=tmp_path, check=False
    )

    assert told.stdout == shown
    assert (tmp_path / "code").read_text() == f"{code}\n"
    assert "Traceback" not in told.stderr
    assert "internal error" not in told.stderr
    assert "ignored" not in told.stderr


def test_without_a_command_the_help_is_shown(command: Command) -> None:
    told = command.run()

    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == command.run("--help").stdout


def test_the_version_is_printed(command: Command) -> None:
    assert command.run("--version").stdout.startswith("gpusched 0.")


SLOW = {"typer", "rich", "psutil", "numpy", "tensorflow", "keras"}
"""To import one of these takes as long as to answer."""


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (("plan", *P3, "--json"), {*SLOW, "pynvml", "zmq", "gpusched.supervisor", "gpusched.render.plan"}),
        (("plan", *P3), {*SLOW, "pynvml", "zmq", "gpusched.supervisor", "gpusched.api.arguments", "gpusched.engines"}),
        (("plan", "--json"), {*SLOW, "pynvml", "zmq", "hashlib", "secrets", "subprocess", "shutil"}),
        (("status", "--json"), {*SLOW, "pynvml", "zmq", "hashlib", "secrets", "subprocess", "tomllib"}),
        (("status",), {*SLOW, "pynvml", "zmq", "hashlib", "secrets", "subprocess", "json"}),
        (("status", "--oneline"), {*SLOW, "pynvml", "zmq", "gpusched.render.status"}),
        (("ps", "--json"), {*SLOW, "pynvml", "gpusched.supervisor", "gpusched.render.ps"}),
        (("ps", "--why", "snake-1"), {*SLOW, "pynvml", "gpusched.supervisor"}),
        (("usage", "--json"), {*SLOW, "pynvml", "html"}),
        (("stop", "--all"), {*SLOW, "pynvml", "gpusched.supervisor", "gpusched.planner"}),
        (("wait", "snake-1"), {*SLOW, "pynvml", "gpusched.supervisor", "gpusched.planner"}),
        (("why", "snake-1"), {*SLOW, "pynvml", "gpusched.supervisor", "gpusched.planner"}),
        (("logs", "snake-1"), {*SLOW, "pynvml", "gpusched.supervisor", "gpusched.planner"}),
        (("run", "-d", "--num-gpus", "0", "--name=x", "true"), {*SLOW, "pynvml", "gpusched.supervisor"}),
        (("--version",), {*SLOW - {"typer"}, "pynvml", "zmq", "gpusched.planner", "hashlib", "secrets"}),
        (("launch", "--help"), {"pynvml", "zmq", "gpusched.api.launching", "gpusched.planner", "gpusched.render.text"}),
        (("launch", "snake", "--", "--help"), {"rich", "pynvml", "zmq", "numpy", "tensorflow", "keras"}),
        (("new", "snake"), {"rich", "pynvml", "zmq", "numpy", "psutil", "hashlib"}),
        (("export", "compose", "snake", *P3, "--json"), {*SLOW - {"typer"}, "pynvml", "zmq", "yaml"}),
        (("keys", "list"), {"rich", "pynvml", "zmq", "numpy", "psutil", "hashlib"}),
        (("join", "tcp://127.0.0.1:5555"), {"rich", "pynvml", "zmq", "numpy", "tensorflow", "keras"}),
    ],
)
def test_a_command_imports_only_what_it_needs(words: tuple[str, ...], unwanted: set[str], command: Command) -> None:
    code = (
        "import sys\nfrom gpusched.cli.main import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=command.env, check=True)

    imported = set(told.stderr.split())
    assert "gpusched.cli.main" in imported
    assert not unwanted & imported


def test_a_folder_called_jaxlib_is_no_jaxlib(command: Command, tmp_path: Path) -> None:
    (tmp_path / "jaxlib").mkdir()

    told = command.run("plan", *P3, "--json", cwd=tmp_path)

    assert told.returncode == 0, told.stderr


def test_a_command_ends_without_a_look_through_all_that_it_imported(command: Command) -> None:
    lines = [
        "import atexit, gc, sys",
        "atexit.register(lambda: print('frozen', gc.get_freeze_count() > 1000))",  # the first registered runs last
        "from gpusched.cli.main import main",
        "sys.exit(main(['plan', '--machine', 'p3.8xlarge']))",
    ]
    argv = [sys.executable, "-c", "\n".join(lines)]
    told = subprocess.run(argv, capture_output=True, text=True, env=command.env, check=True).stdout
    assert told.splitlines()[-1] == "frozen True"
