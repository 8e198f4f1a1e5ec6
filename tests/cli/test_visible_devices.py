"""CUDA_VISIBLE_DEVICES in the environment of whoever starts something: kept to by all that takes devices, and shown."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.foreground import but_for_the_wait
from tests.cli.queue import jobs, queue, state
from tests.patience import until
from tests.stand_in.library import StandIn

UUIDS = [f"GPU-cafe000{index}-5ca1-ab1e-0000-00000000da7a" for index in range(4)]
SHOW = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


@pytest.fixture
def four(command: Command, stand_in: StandIn) -> Command:
    """The command line of a host with four idle GPUs."""
    command.env |= stand_in.host("gpus 4\nset * used 0").variables
    return command


def seeing(command: Command, names: str) -> Command:
    command.env["CUDA_VISIBLE_DEVICES"] = names
    return command


def test_a_command_gets_no_other_device(four: Command) -> None:
    told = seeing(four, "2").run("run", "--fraction", "0.4", *SHOW)
    assert (told.stdout, but_for_the_wait(told.stderr)) == (f"{UUIDS[2]}\n", "")

    told = seeing(four, f"{UUIDS[3][:12]},1").run("run", "--num-gpus", "2", *SHOW)
    assert (set(told.stdout.strip().split(",")), but_for_the_wait(told.stderr)) == ({UUIDS[1], UUIDS[3]}, "")

    told = seeing(four, "1,3").run("run", "--gpus", "3", *SHOW)
    assert (told.stdout, but_for_the_wait(told.stderr)) == (f"{UUIDS[3]}\n", "")


def test_a_command_in_the_queue_gets_no_other_device_and_its_submission_says_so(four: Command) -> None:
    told = seeing(four, "2").run("run", "-d", "--fraction", "0.4", *SHOW)
    assert told.stdout == "run-1\n"
    assert "CUDA_VISIBLE_DEVICES='2': no other device is taken" in told.stderr

    assert four.run("logs", "-f", "run-1").stdout.splitlines()[-1] == UUIDS[2]


def test_a_command_without_a_device_asks_for_none_and_is_not_held_up(four: Command) -> None:
    told = seeing(four, "").run("run", "--num-gpus", "0", *SHOW)
    assert (told.stdout, but_for_the_wait(told.stderr)) == ("\n", "")


def test_a_command_that_waits_for_it_says_which_while_others_are_free(four: Command) -> None:
    seeing(four, "1")
    first = queue(four, "--", "sleep", "1000")
    until(lambda: state(four, first) == "running", "the first runs")
    second = queue(four, "--", "true")
    until(lambda: bool(jobs(four)[second]["why"]), "the second waits with a reason")

    why = jobs(four)[second]["why"]
    assert "needs 1 whole GPU (with CUDA_VISIBLE_DEVICES='1'); GPU 1 has" in why
    assert "GPU 0" not in why
    four.run("stop", "--all", "--kill")


@pytest.mark.parametrize(
    ("names", "words", "code", "says"),
    [
        ("1", ("--gpus", "0,1"), 2, "--gpus: GPU 0 is outside of CUDA_VISIBLE_DEVICES='1'"),
        ("1", ("--num-gpus", "2"), 3, "CUDA_VISIBLE_DEVICES='1': only GPU 1 may be used"),
        ("", (), 3, "run without a GPU: --num-gpus 0"),
        ("-1", ("--fraction", "0.5"), 3, "CUDA_VISIBLE_DEVICES='-1': no device may be used"),
        ("7", (), 3, "'7' is no device here, and CUDA stops there"),
    ],
)
def test_what_it_leaves_no_room_for_is_refused_with_its_name(
    names: str, words: tuple[str, ...], code: int, says: str, four: Command
) -> None:
    told = seeing(four, names).run("run", *words, "--", "true")

    assert (told.returncode, told.stdout) == (code, "")
    assert says in told.stderr


def test_a_plan_keeps_to_it_and_says_so(four: Command) -> None:
    plan = json.loads(seeing(four, "1,2").run("plan", "--procs", "4", "--json").stdout)

    assert {replica["device_index"] for replica in plan["replicas"]} == {1, 2}
    assert "CUDA_VISIBLE_DEVICES='1,2': only GPU 1 and 2 may be used" in plan["warnings"]
    assert "only GPU 1 and 2 may be used" in four.run("plan", "--procs", "4").stdout


def test_a_plan_for_another_machine_does_not_know_it(four: Command) -> None:
    plan = json.loads(seeing(four, "1").run("plan", "--machine", "4x16GiB", "--procs", "8", "--json").stdout)

    assert {replica["device_index"] for replica in plan["replicas"]} == {0, 1, 2, 3}
    assert "CUDA_VISIBLE_DEVICES" not in json.dumps(plan["warnings"])


def test_an_empty_one_has_a_workload_run_on_the_cpus(four: Command) -> None:
    plan = json.loads(seeing(four, "").run("plan", "--procs", "2", "--json").stdout)

    assert (plan["counts"], plan["devices"]) == ([], [])
    assert {replica["device_uuid"] for replica in plan["replicas"]} == {None}
    assert "no GPU of" in plan["why"][0]
    assert "CUDA_VISIBLE_DEVICES='': no device may be used" in plan["warnings"]


@pytest.mark.parametrize(("names", "counts"), [("3", [1]), ("", [])])
def test_a_launch_keeps_to_it_and_says_so(names: str, counts: list[int], four: Command) -> None:
    told = seeing(four, names).run("launch", str(four.home / "one.toml"), cwd=wanting_a_device(four.home))

    assert told.returncode == 0, told.stdout + told.stderr
    assert f"warning: CUDA_VISIBLE_DEVICES={names!r}" in told.stdout
    assert (UUIDS[3] in (four.state / "jobs/one-1/logs/main.0.log").read_text()) == bool(counts)


@pytest.mark.parametrize("names", ["3", ""])
def test_a_launch_in_the_queue_keeps_to_it_and_says_so(names: str, four: Command) -> None:
    told = seeing(four, names).run("launch", "-d", str(four.home / "one.toml"), cwd=wanting_a_device(four.home))

    assert f"CUDA_VISIBLE_DEVICES={names!r}: no other device is taken" in told.stderr
    assert four.run("wait", "one-1").returncode == 0
    assert (UUIDS[3] in (four.state / "jobs/one-1/logs/main.0.log").read_text()) == bool(names)


def wanting_a_device(home: Path) -> Path:
    """Write a workload of one process that prints which devices it sees."""
    (home / "one.toml").write_text(
        'name = "one"\n[roles.main]\ncommand = ["sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES"]\n'
        'memory = { min = "1GiB" }\n[job]\nleader = "main"\n'
    )
    return home


def test_inside_a_job_the_variable_is_the_jobs_and_restricts_nothing(four: Command) -> None:
    told = four.run("run", "--num-gpus", "1", "--", sys.executable, "-m", "gpusched", "plan", "--procs", "8", "--json")

    plan = json.loads(told.stdout)
    assert len({replica["device_index"] for replica in plan["replicas"]}) == 3, "all but the one that the job has"
    assert "CUDA_VISIBLE_DEVICES" not in json.dumps(plan["warnings"])
