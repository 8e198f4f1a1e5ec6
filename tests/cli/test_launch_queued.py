"""`gpusched launch -d`, which queues a workload, and `--dry-run`, which starts nothing."""

import json
from pathlib import Path

from tests.cli.command import TOYS, Command
from tests.cli.queue import jobs, state, until_state
from tests.patience import PATIENCE_S, until

P3 = ("--machine", "p3.8xlarge")
SMALL = ("--machine", "1x8GiB")


def test_a_detached_launch_goes_on_without_its_terminal_as_it_was_planned(command: Command) -> None:
    command.env["TOY_EXPECTS"] = "33"
    workload = command.toy("until_all_told.py", actors=32)

    told = command.run("launch", "-d", workload, *P3, "--grow", "--name", "home case")

    assert (told.returncode, told.stdout) == (0, "toy-1\n"), told.stderr
    assert "gpusched logs -f toy-1" in told.stderr
    assert command.run("wait", "toy-1").stdout.startswith("toy-1 succeeded after ")
    job = jobs(command)["toy-1"]
    assert (job["counts"], job["name"], job["simulated"]) == ([3, 10, 10, 10], "home case", True)
    planned = json.loads(command.run("plan", "--workload", workload, *P3, "--json").stdout)
    for replica in planned["replicas"]:
        env = json.loads((Path(job["run_dir"]) / f"{replica['name']}.told").read_text())["env"]
        assert replica["env"].items() <= env.items()


def test_what_waits_in_the_queue_takes_its_minimum_and_leaves_the_rest_to_the_next(command: Command) -> None:
    workload = command.toy("for_ever.py")
    planned = json.loads(
        command.run("plan", "--workload", workload, "--machine", "2x16GiB", "--no-grow", "--json").stdout
    )

    for _ in range(4):
        assert command.run("launch", "-d", workload, "--machine", "2x16GiB").returncode == 0

    for job in ("toy-1", "toy-2", "toy-3", "toy-4"):
        until_state(command, job, "running")
    found = jobs(command)
    assert [found[f"toy-{number}"]["counts"] for number in (1, 2, 3, 4)] == [[3, 0], [3, 0], [3, 0], [0, 3]]
    limits = [replica["limit_mib"] for replica in planned["replicas"]]
    assert limits == [2048, 512, 512]
    assert [replica["limit_mib"] for replica in found["toy-4"]["replicas"]] == limits


def test_a_launch_that_grows_beside_others_is_warned_of(command: Command) -> None:
    workload, machine = command.toy("for_ever.py"), ("--machine", "1x16GiB")
    alone = command.run("launch", "--dry-run", workload, *machine)
    assert command.run("launch", "-d", workload, *machine).returncode == 0
    until_state(command, "toy-1", "running")
    assert command.run("launch", "-d", workload, *machine, "--hold").returncode == 0

    beside = command.start("launch", workload, *machine)
    until(lambda: state(command, "toy-3") == "running", "the launch in the foreground")
    command.run("stop", "toy-3")
    lines = beside.communicate(timeout=PATIENCE_S)[0]

    assert "--no-grow" not in alone.stdout
    assert (
        "it takes 11635 MiB of GPU 0 while other jobs run there and are in the queue; 4422 MiB are enough: --no-grow"
        in lines
    )
    assert command.run("plan", "--workload", workload, *machine).stdout == alone.stdout.partition("\nwould start")[0]


def test_what_a_role_needs_under_its_options_holds_until_its_turn_has_come(command: Command) -> None:
    command.env |= {"TOY_EXPECTS": "3", "PYTHONPATH": str(TOYS)}
    workload = Path(command.toy("until_all_told.py", job='settings = "options:Settings"'))
    conditional = 'memory = { min = "512MiB", unless = { colour = "green", legs = 4 } }'
    workload.write_text(workload.read_text().replace('memory = { min = "512MiB" }', conditional))

    dry = json.loads(command.run("launch", "--dry-run", str(workload), *P3, "--json", "--colour", "green").stdout)
    told = command.run("launch", "-d", str(workload), *P3, "--colour", "green")

    assert dry["counts"] == [1, 0, 0, 0]
    assert told.returncode == 0, told.stderr
    assert command.run("wait", "toy-1").stdout.startswith("toy-1 succeeded after ")
    job = jobs(command)["toy-1"]
    assert job["counts"] == [1, 0, 0, 0]
    env = json.loads((Path(job["run_dir"]) / "actor.1.told").read_text())["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "GPUSCHED_MEMORY_LIMIT_MIB" not in env
    assert json.loads(env["GPUSCHED_SETTINGS"])["colour"] == "green"
    assert json.loads(command.run("launch", "--dry-run", str(workload), *P3, "--json").stdout)["counts"] != [1, 0, 0, 0]


def test_as_json_it_prints_the_job(command: Command) -> None:
    told = command.run("launch", "-d", command.toy("for_ever.py", memory=False), "--hold", "--json")

    job = json.loads(told.stdout)
    assert (job["id"], job["state"], job["held"]) == ("toy-1", "queued", True)


def test_a_second_one_waits_until_the_first_has_ended(command: Command) -> None:
    workload = command.toy("for_ever.py")
    for _ in range(2):
        assert command.run("launch", "-d", workload, *SMALL).returncode == 0
    until_state(command, "toy-1", "running")
    assert state(command, "toy-2") == "queued"
    until(lambda: "toy-1" in command.run("ps", "--why").stdout.partition("toy-2")[2], "it is told for what")

    command.run("stop", "toy-1")

    until_state(command, "toy-2", "running")


def test_options_of_the_queue_need_a_queue(command: Command) -> None:
    told = command.run("launch", command.toy("for_ever.py"), "--time-limit", "1h", "--hold")

    assert told.returncode == 2
    assert "--time-limit and --hold" in told.stderr
    assert "add -d" in told.stderr


def test_a_dry_run_shows_the_plan_and_the_commands_and_starts_nothing(command: Command) -> None:
    workload = command.toy("for_ever.py", actors=32)
    plan = command.run("plan", "--workload", workload, *P3).stdout

    told = command.run("launch", "--dry-run", workload, *P3)
    as_json = json.loads(command.run("launch", "--dry-run", workload, *P3, "--json").stdout)

    assert told.returncode == 0
    assert told.stdout.startswith(plan)
    assert "would start now: 33 processes" in told.stdout
    assert "  actor.0-31  " in told.stdout
    assert as_json["starts_now"] is True
    assert as_json["commands"]["actor.31"][-1].endswith("for_ever.py")
    assert not (command.state / "jobs").exists()
    assert not command.running()


def test_a_dry_run_says_why_it_could_not_start_now(command: Command) -> None:
    workload = command.toy("for_ever.py")
    assert command.run("launch", "-d", workload, *SMALL).returncode == 0
    until(lambda: state(command, "toy-1") == "running", "the first has the device")

    told = command.run("launch", "--dry-run", workload, *SMALL, "--json")

    assert told.returncode == 3
    error = json.loads(told.stdout)["error"]
    assert error["code"] == "not-now"
    assert "are leased" in error["message"]
    assert "launch -d lets it wait" in error["hint"]
