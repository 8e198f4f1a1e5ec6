"""A job of the daemon's has the umask, limits, nice value and CPUs of whoever submitted it, not the daemon's."""

import os
import resource
import shutil
import subprocess

import pytest

from tests.cli.command import Command
from tests.cli.queue import GPUSCHED, queue, until_state

TELL = "umask; ulimit -Sn; ulimit -Hn; nice; taskset -cp $$ | sed 's/.*: //'"


def last_lines(command: Command, job: str, count: int) -> list[str]:
    until_state(command, job, "succeeded")
    return command.run("logs", job).stdout.splitlines()[-count:]


def test_a_detached_command_has_its_submitters(command: Command) -> None:
    command.daemon()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cpu = max(os.sched_getaffinity(0))
    typed = f'umask 027; ulimit -Sn {soft - 1}; exec nice -n 5 taskset -c {cpu} "$@"'
    words = [*GPUSCHED, "run", "-d", "--num-gpus", "0", "--", "bash", "-c", TELL]
    subprocess.run(["bash", "-c", typed, "bash", *words], env=command.env, check=True, capture_output=True)

    assert last_lines(command, "run-1", 5) == ["0027", str(soft - 1), str(hard), str(os.nice(0) + 5), str(cpu)]


def test_a_submitter_that_started_the_daemon_leaves_nothing_of_it_to_the_next_one(command: Command) -> None:
    words = [*GPUSCHED, "run", "-d", "--num-gpus", "0", "--", "true"]
    subprocess.run(["bash", "-c", 'umask 077; ulimit -Sn 200; "$@"', "bash", *words], env=command.env, check=True)
    queue(command, "--num-gpus", "0", "--", "bash", "-c", "umask; ulimit -Sn")

    umask = os.umask(0o022)
    os.umask(umask)
    wanted = [f"{umask:04o}", str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
    assert last_lines(command, "run-2", 2) == wanted


def test_a_nice_value_that_the_daemon_may_not_set_is_the_nearest_one_and_is_named_in_the_log(command: Command) -> None:
    """The daemon is of a root that lacks CAP_SYS_NICE, as in containers."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None or os.nice(0) > 0:
        pytest.skip("a lower nice value takes root, and its lack setpriv")
    confined = ["setpriv", "--bounding-set", "-sys_nice", *GPUSCHED, "daemon", "start"]
    subprocess.run(confined, env=command.env, check=True, capture_output=True)
    words = [*GPUSCHED, "run", "-d", "--num-gpus", "0", "--", "nice"]
    subprocess.run(["nice", "-n", "-10", *words], env=command.env, check=True, capture_output=True)

    assert last_lines(command, "run-1", 1) == ["0"]
    assert "the nice value -10 is not allowed here, it is 0" in command.run("logs", "run-1").stdout
