"""`gpusched run`: a command under leases and in the queue that behaves as if it stood there alone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.cli.foreground import FREE, but_for_the_wait, line, python, running, shell
from tests.cli.queue import GPUSCHED, ONE_GPU, jobs, queue, state
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn

# ---- as if it stood there alone ----


@pytest.mark.parametrize(
    ("script", "code"), [("true", 0), ("exit 3", 3), ("exit 255", 255), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)]
)
def test_the_exit_code_is_the_commands(script: str, code: int, command: Command) -> None:
    told = command.run(*shell(script))

    assert (told.returncode, told.stdout, but_for_the_wait(told.stderr)) == (code, "", "")


def test_a_program_that_is_not_there_or_cannot_run_is_told_as_a_shell_does(command: Command) -> None:
    missing = command.run(*FREE, "--", "no-such-program")
    plain = command.run(*FREE, "--", __file__)
    odd = command.home / "odd"
    odd.write_text("#!/no/such/interpreter\n")
    odd.chmod(0o755)
    broken = command.run(*FREE, "--", str(odd))

    assert [told.returncode for told in (missing, plain, broken)] == [127, 126, 127]
    assert "\x1b" not in command.run(*FREE, "--", "no-such\x1b[2J").stderr
    assert "no-such-program" in missing.stderr
    assert "gpusched: " in broken.stderr
    assert missing.stdout + plain.stdout + broken.stdout == ""


def test_bytes_go_in_and_come_out_untouched(command: Command) -> None:
    noise = bytes(range(256)) * 5000

    told = subprocess.run([*GPUSCHED, *FREE, "cat"], input=noise, capture_output=True, env=command.env, check=True)

    assert (told.stdout, but_for_the_wait(told.stderr)) == (noise, "")


def test_a_reader_that_has_enough_ends_the_command_as_in_any_pipe(command: Command) -> None:
    with running(command, *python("while True: print('y')")) as process:
        assert line(process) == "y"
        assert process.stdout is not None
        process.stdout.close()

        assert process.wait(PATIENCE_S) != 0


def test_the_words_of_a_command_are_its_own(command: Command) -> None:
    told = command.run(*FREE, "echo", "{python}", "--json", "-d", "--", "--help")

    assert told.stdout == "{python} --json -d -- --help\n"


def test_directory_and_environment_are_those_it_was_typed_in(command: Command) -> None:
    command.env["MINE"] = "a = b"

    told = command.run(*shell('pwd; echo "$MINE"; echo "$GPUSCHED_JOB"'), cwd=command.home)

    assert told.stdout == f"{command.home}\na = b\nrun-1\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_from_somebody_is_passed_on(name: str, command: Command) -> None:
    text = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])
print("ready", flush=True)
signal.sigwait([signal.{name}])
print("got it", flush=True)
raise SystemExit(7)
"""
    with running(command, *python(text)) as process:
        assert line(process) == "ready"
        process.send_signal(signal.Signals[name])

        assert line(process) == "got it"
        assert process.wait(PATIENCE_S) == 7


def test_a_signal_that_ends_the_command_is_seen_in_the_exit_code(command: Command) -> None:
    with running(command, *shell("echo ready; exec sleep 1000")) as process:
        assert line(process) == "ready"
        process.terminate()

        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_kill_9_of_gpusched_ends_the_command(command: Command) -> None:
    with running(command, *shell("echo $$; exec sleep 1000")) as process:
        pid = int(line(process))
        process.kill()

        until(lambda: not Path(f"/proc/{pid}").exists(), "the command has ended")
        until(lambda: state(command, "run-1") == "cancelled", "the job is over")


# ---- at a terminal ----


def test_an_interactive_program_has_the_terminal(terminal: Any) -> None:
    window = terminal(*GPUSCHED, *FREE, "--", sys.executable, "-i", "-c", "import sys; print(sys.stdin.isatty())")
    window.see("True")
    window.see(">>>")

    window.type(b"print(6 * 7)\r")
    window.see("\n42")
    window.type(b"raise SystemExit(5)\r")

    assert window.process.wait(PATIENCE_S) == 5


def test_ctrl_c_reaches_the_command_once_and_its_end_is_ours(terminal: Any) -> None:
    text = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
for count in 1, 2:
    signal.sigwait([signal.SIGINT])
    print("interrupted", count, flush=True)
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
print("last", flush=True)
time.sleep(1000)
"""
    window = terminal(*GPUSCHED, *python(text))
    window.see("ready")
    window.type(b"\x03")
    window.see("interrupted 1")
    window.type(b"\x03")
    window.see("interrupted 2")
    window.see("last")
    window.type(b"\x03")

    assert window.process.wait(PATIENCE_S) == 130


def test_ctrl_z_halts_it_as_a_shells_job_and_fg_brings_it_back(terminal: Any, command: Command) -> None:
    command.env["PS1"] = "next> "
    window = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    window.see("next> ")
    program = """
import select, signal
signal.signal(signal.SIGCONT, lambda *_: print("ba" + "ck", flush=True))
print("re" + "ady", flush=True)
while not select.select([0], [], [], 0.05)[0]:
    pass
print("told", input(), flush=True)
"""
    Path(command.home / "asks.py").write_text(program)
    window.type(" ".join((*GPUSCHED, *FREE, sys.executable, str(command.home / "asks.py"))).encode() + b"\r")
    window.see("ready")
    window.type(b"\x1a")
    window.see("Stopped")
    window.see("next> ")
    window.type(b"fg\r")
    window.see("back")
    window.type(b"hello\r")
    window.see("told hello")
    window.see("next> ")
    window.type(b"echo code=$?\r")
    window.see("code=0")


def test_a_program_that_tidies_up_on_ctrl_z_has_done_so_before_the_shell_goes_on(
    terminal: Any, command: Command
) -> None:
    command.env["PS1"] = "next> "
    window = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    window.see("next> ")
    program = """
import os, signal, time
def tidy(*_):
    time.sleep(0.1)
    print("ti" + "died", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGTSTP, tidy)
print("re" + "ady", flush=True)
while True:
    time.sleep(0.05)
"""
    Path(command.home / "tidies.py").write_text(program)
    window.type(" ".join((*GPUSCHED, *FREE, sys.executable, str(command.home / "tidies.py"))).encode() + b"\r")
    window.see("ready")
    window.type(b"\x1a")

    assert "tidied" in window.see("Stopped")


# ---- the queue ----


def test_two_parts_of_one_gpu_run_together_and_a_third_waits(command: Command) -> None:
    part = ("run", *ONE_GPU, "--fraction", "0.4", "--", "sh", "-c", "echo up; read line")
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(running(command, *part, stdin=subprocess.PIPE)) for _ in range(2))
        assert (line(first), line(second)) == ("up", "up")
        third = stack.enter_context(running(command, *part, stdin=subprocess.PIPE))
        assert third.stderr is not None
        told = third.stderr.readline()
        if told == "gpusched: run-3 waits for its turn\n":  # nothing has been decided yet
            told = third.stderr.readline()
        assert told.startswith("gpusched: run-3 waits: needs 0.4 of one GPU")
        assert "run-1" in told
        assert state(command, "run-3") == "queued"

        first.communicate("done\n", timeout=PATIENCE_S)

        assert line(third) == "up"
        assert first.returncode == 0
        for left in (second, third):
            assert left.communicate("done\n", timeout=PATIENCE_S)[0] == ""
            assert left.returncode == 0


def test_whole_devices_are_seen_as_0_and_1_by_their_uuids(command: Command, stand_in: StandIn) -> None:
    command.env |= stand_in.host("gpus 4\nset * used 0").variables
    devices = command.run("run", "--num-gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout.strip()

    assert [uuid.startswith("GPU-") for uuid in devices.split(",")] == [True, True]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--gpus", "1,2"), "1,2"),
        (("--gpus", "3,0", "--num-gpus", "1"), "0"),
        (("--gpus", "2", "--fraction", "0.4"), "2"),
        (("--gpus", "1,3", "--memory", "6GiB"), "1"),
        (("--exclude-gpus", "0"), "1"),
        (("--exclude-gpus", "0,1", "--num-gpus", "2"), "2,3"),
        (("--gpus", "1,2,3", "--exclude-gpus", "2"), "1,3"),
    ],
)
def test_the_devices_that_are_named_are_those_it_gets(
    words: tuple[str, ...], expected: str, command: Command, stand_in: StandIn
) -> None:
    command.env |= stand_in.host("gpus 4\nset * used 0").variables
    told = command.run("run", *words, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    devices = json.loads(command.run("status", "--json").stdout)["devices"]

    assert but_for_the_wait(told.stderr) == ""
    index = {device["uuid"]: str(device["index"]) for device in devices}
    assert ",".join(index[uuid] for uuid in told.stdout.strip().split(",")) == expected


def test_each_of_several_processes_has_its_part_of_the_limit(command: Command) -> None:
    show = ("--", "sh", "-c", "echo $GPUSCHED_MEMORY_LIMIT_MIB")
    one = command.run("run", *ONE_GPU, "--memory", "6GiB", *show).stdout
    three = command.run("run", *ONE_GPU, "--memory", "6GiB", "--processes", "3", *show).stdout

    assert (one, three) == ("6144\n", "2048\n")
    shares = [job["replicas"][0]["share_mib"] for job in jobs(command).values()]
    assert sorted(shares) == [6144 + 450, 6144 + 3 * 450]


def test_named_devices_are_waited_for_while_others_are_free(command: Command) -> None:
    two = ("--machine", "2x16GiB")
    first = queue(command, *two, "--gpus", "1", "--", "sleep", "1000")
    until(lambda: state(command, first) == "running", "the first runs")
    second = queue(command, *two, "--gpus", "0,1", "--", "true")
    third = queue(command, *two, "--gpus", "1", "--fraction", "0.1", "--", "true")

    until(lambda: all(jobs(command)[job]["why"] for job in (second, third)), "both wait with a reason")
    assert "needs 2 whole GPUs" in jobs(command)[second]["why"]
    assert "GPU 0 has" not in jobs(command)[third]["why"]
    command.run("stop", "--all", "--kill")


def test_on_real_devices_a_third_part_waits_too(command: Command, stand_in: StandIn) -> None:
    command.env |= stand_in.host("gpus 1\nset * used 0").variables
    part = ("run", "-d", "--fraction", "0.4", "--", "sleep", "1000")
    for _ in range(3):
        assert command.run(*part).returncode == 0

    until(lambda: [job["state"] for job in jobs(command).values()].count("running") == 2, "two run")
    why = command.run("ps", "--why").stdout
    assert state(command, "run-3") == "queued"
    assert "needs 0.4 of one GPU" in why
    command.run("stop", "--all", "--kill")


def test_ctrl_c_while_it_waits_takes_it_out_of_the_queue(command: Command, terminal: Any) -> None:
    assert command.run("run", "-d", *ONE_GPU, "--", "sleep", "1000").returncode == 0
    until(lambda: state(command, "run-1") == "running", "the first runs")
    window = terminal(*GPUSCHED, "run", *ONE_GPU, "--", "echo", "never")
    window.see("run-2 waits: needs 1 whole GPU")
    window.type(b"\x03")

    assert window.process.wait(PATIENCE_S) == 130
    assert state(command, "run-2") == "cancelled"
    assert state(command, "run-1") == "running"


def test_a_job_that_was_stopped_in_the_queue_says_so(command: Command) -> None:
    with running(command, "run", "--num-gpus", "0", "--hold", "--", "true") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "gpusched: run-1 is held; let it go with: gpusched release run-1\n"
        command.run("stop", "run-1")

        assert process.wait(PATIENCE_S) == 1
        assert "run-1 was cancelled before it could start" in process.stderr.read()


def test_a_held_command_starts_when_it_is_released(command: Command) -> None:
    with running(command, "run", "--num-gpus", "0", "--hold", "--", "echo", "up") as process:
        assert process.stderr is not None
        assert "run-1 is held" in process.stderr.readline()
        assert command.run("release", "run-1").stdout.startswith("run-1 ")

        assert line(process) == "up"
        assert process.wait(PATIENCE_S) == 0


def test_kill_9_of_the_daemon_while_it_waits_costs_no_turn(command: Command) -> None:
    command.run("run", "-d", *ONE_GPU, "--", "sleep", "1000")
    until(lambda: state(command, "run-1") == "running", "the first runs")
    with running(command, "run", *ONE_GPU, "--", "echo", "up") as process:
        assert process.stderr is not None
        assert "run-2 waits" in process.stderr.readline()

        os.kill(command.daemon(), signal.SIGKILL)
        until(lambda: command.run("daemon", "status").returncode == 0, "the waiting command has started a daemon again")
        command.run("stop", "run-1", "--kill")

        assert line(process) == "up"
        assert process.wait(PATIENCE_S) == 0


def test_kill_9_of_the_daemon_while_it_runs_is_not_noticed(command: Command) -> None:
    with running(command, *shell("echo up; read line; echo $line; exit 4"), stdin=subprocess.PIPE) as process:
        assert line(process) == "up"
        os.kill(command.daemon(), signal.SIGKILL)

        out, err = process.communicate("still here\n", timeout=PATIENCE_S)

        assert (process.returncode, out, err) == (4, "still here\n", "")
    command.daemon()
    until(lambda: state(command, "run-1") == "failed", "the next daemon knows how it ended")
    assert jobs(command)["run-1"]["replicas"][0]["exit"]["code"] == 4


def test_a_time_limit_ends_it_and_says_so(command: Command) -> None:
    told = command.run("run", "--num-gpus", "0", "--time-limit", "1s", "--", "sleep", "1000")

    assert (told.returncode, told.stdout) == (143, "")
    assert but_for_the_wait(told.stderr) == "gpusched: run-1: its time limit of 1 s is over\n"


def test_a_stop_by_somebody_is_told(command: Command) -> None:
    with running(command, *shell("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")) as process:
        assert line(process) == "up"
        assert command.run("stop", "run-1").stdout.startswith("run-1 cancelled after ")

        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read().endswith("gpusched: run-1: stopped by gpusched stop\n")


# ---- options ----


def test_detached_it_prints_its_id_and_how_to_follow_it(command: Command) -> None:
    told = command.run("run", "-d", "--num-gpus", "0", "--name", "first", "--priority", "3", "--", "echo", "hello")
    as_json = command.run("run", "-d", "--json", "--num-gpus", "0", "--", "true")

    assert told.stdout == "run-1\n"
    assert "gpusched logs -f run-1" in told.stderr
    assert json.loads(as_json.stdout)["id"] == "run-2"
    assert "hello" in command.run("logs", "-f", "run-1").stdout
    assert (jobs(command)["run-1"]["name"], jobs(command)["run-1"]["priority"]) == ("first", 3)


def test_it_starts_after_another_and_not_before_its_time(command: Command) -> None:
    command.run("run", "-d", "--num-gpus", "0", "--", "sleep", "1000")
    command.run("run", "-d", "--num-gpus", "0", "--after", "run-1", "--", "true")
    command.run("run", "-d", "--num-gpus", "0", "--at", "+2h", "--", "true")

    told = command.run("ps", "--why").stdout
    assert [job["state"] for job in jobs(command).values()][1:] == ["queued", "queued"]
    assert "run-1" in told.split("run-2", 1)[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--num-gpus", "1", "--memory", "6GiB"), "exclude each other"),
        (("--fraction", "1.5"), "'1.5' is not a fraction"),
        (("--fraction", "much"), "'much' is not a fraction"),
        (("--memory", "6"), "'6' is not an amount of memory"),
        (("--num-gpus", "0,2"), "--gpus names devices"),
        (("--num-gpus", "0", "--gpus", "1"), "--num-gpus 0 is no device, and --gpus names some"),
        ((*ONE_GPU, "--gpus", "2"), "for 2 of them: --num-gpus 2"),
        ((*ONE_GPU, "--gpus", "0", "--exclude-gpus", "0"), "leave no device"),
        (("--num-gpus", "5000"), "too many"),
        (("--processes", "0"), "from 1 to 1024"),
        (("--processes", "2", "--num-gpus", "0"), "--num-gpus 0 is none"),
        (("--processes", "3", "--memory", "2MiB"), "less than 1 MiB for each of 3 processes"),
        (("--time-limit", "90"), "'90' has no unit"),
        (("--at", "noon"), "'noon' is not a time"),
        (("--priority", "high"), "high"),
        (("--json",), "belongs to a command in the background"),
        (("--requeue",), "belongs to a command in the background"),
        (("--after-any", "nothing-1", "--num-gpus", "0"), "nothing-1"),
        (("--after", "nothing-1", "--num-gpus", "0"), "nothing-1"),
        (("--machine", "no-such-machine"), "no-such-machine"),
    ],
)
def test_wrong_options_are_refused_at_once(words: tuple[str, ...], told: str, command: Command) -> None:
    said = command.run("run", *words, "--", "true")

    assert said.returncode in (2, 4)
    assert told in said.stderr + said.stdout
    assert "Traceback" not in said.stderr


def test_what_can_never_fit_is_refused_at_once(command: Command) -> None:
    never = command.run("run", *ONE_GPU, "--num-gpus", "2", "--", "true")
    without = command.run("run", "--machine", "cpu", "--", "true")
    named = command.run("run", "--machine", "cpu", "--gpus", "0", "--", "true")

    assert (never.returncode, without.returncode, named.returncode) == (3, 3, 3)
    assert "--num-gpus 0" in without.stderr
    assert "--gpus and --exclude-gpus name devices" in named.stderr
    assert "to run without one: --num-gpus 0" in named.stderr
    assert never.stdout + without.stdout + named.stdout == ""
