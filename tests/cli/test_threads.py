"""How many threads a command is asked to compute with: what a person set, else its part of this host's CPUs."""

import os

import pytest

from tests.cli.command import Command
from tests.cli.queue import until_state

NAMES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "MKL_NUM_THREADS")
SHOWN = ("sh", "-c", f"echo {' '.join(f'${{{name}:-unset}}' for name in NAMES)}")
QUARTER = ("--machine", "p3.8xlarge", "--fraction", "0.25", "--", *SHOWN)


@pytest.fixture(autouse=True)
def no_wish(command: Command) -> None:
    for name in NAMES:
        command.env.pop(name, None)


def test_a_quarter_of_a_device_of_a_larger_machine_is_no_more_than_this_host_has(command: Command) -> None:
    here = len(os.sched_getaffinity(0))
    told = command.run("run", *QUARTER)
    several = command.run("run", "--machine", "p3.8xlarge", "--num-gpus", "4", "--", *SHOWN)

    threads = max(1, min(here, 32) // 16)
    assert told.stdout == f"{threads} {threads} {threads} unset\n"
    assert several.stdout.split()[0] == str(min(here, 32))


@pytest.mark.parametrize("detached", [False, True], ids=["run", "run -d"])
def test_what_a_person_set_stays_whatever_the_daemon_was_started_with(detached: bool, command: Command) -> None:
    command.env |= {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    command.daemon()
    command.env |= {"OMP_NUM_THREADS": "3", "TF_NUM_INTEROP_THREADS": "7"}
    del command.env["MKL_NUM_THREADS"]

    told = command.run("run", *(("-d",) if detached else ()), *QUARTER).stdout
    if detached:
        until_state(command, "run-1", "succeeded")
        told = command.run("logs", "run-1").stdout

    omp, _, interop, mkl = told.split()[-4:]
    assert (omp, interop, mkl) == ("3", "7", "unset")


def test_what_a_person_set_stays_in_a_launch_and_in_forks_of_it(command: Command) -> None:
    command.env["OMP_NUM_THREADS"] = "3"
    code = "import os, json; print('threads', os.environ['OMP_NUM_THREADS'])"
    (command.home / "show.py").write_text(code)
    workload = command.home / "workload.toml"
    workload.write_text(f"""
        name = "shown"
        [roles.one]
        threads = 2
        command = ["{{python}}", "{command.home}/show.py"]
        [job]
        preload = ["json"]
    """)

    told = command.run("launch", str(workload), "--machine", "cpu")

    assert told.returncode == 0, told.stdout + told.stderr
    log = (command.state / "jobs" / "shown-1" / "logs" / "one.0.log").read_text()
    assert "threads 3\n" in log
