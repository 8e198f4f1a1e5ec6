"""attached.run: a command stands in the place of a program that is no command line."""

import signal
import subprocess

import pytest

from gpusched.api import attached
from gpusched.errors import UsageError
from gpusched.model.status import JobStatus
from tests.api.session import Session
from tests.cli.command import Command
from tests.patience import PATIENCE_S, until

RUNS = """
    from gpusched.api import attached
    end = attached.run(["sh", "-c", {script!r}], num_gpus=0)
    raise SystemExit(end.code)
"""
WAITS = """
    import sys
    from gpusched.api import attached
    from gpusched.errors import JobFailed
    def waits(job):
        print(job and job.held, file=sys.stderr, flush=True)
    try:
        end = attached.run(["sh", "-c", "exit 4"], waits, num_gpus=0, hold=True)
    except JobFailed as error:
        raise SystemExit(error.message)
    raise SystemExit(f"{end.code} {end.job and end.job.state}")
"""


def lines_until_held(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline().strip()


def test_the_command_has_the_streams_and_its_code_comes_back(session: Session) -> None:
    process = session.start(RUNS.format(script="echo up; echo problem >&2; exit 3"))

    assert process.communicate(timeout=PATIENCE_S) == ("up\n", "problem\n")
    assert process.returncode == 3


def test_a_signal_to_the_program_is_passed_on(session: Session) -> None:
    script = "trap 'echo caught; exit 7' TERM; echo up; while :; do sleep 0.05; done"
    process = session.start(RUNS.format(script=script))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=PATIENCE_S)[0] == "caught\n"
    assert process.returncode == 7


def test_why_it_waits_is_seen_until_it_is_released(command: Command, session: Session) -> None:
    process = session.start(WAITS)
    assert lines_until_held(process) == "True"

    assert command.run("release", "run-1").returncode == 0

    assert process.communicate(timeout=PATIENCE_S)[1].splitlines()[-2:] == ["None", "4 failed"]


def test_a_job_that_is_stopped_while_it_waits_is_an_error(command: Command, session: Session) -> None:
    process = session.start(WAITS)
    assert lines_until_held(process) == "True"

    assert command.run("stop", "run-1").returncode == 0

    assert process.communicate(timeout=PATIENCE_S)[1].splitlines()[-2:] == [
        "None",
        "run-1 was cancelled before it could start: stopped by gpusched stop",
    ]


def test_a_signal_while_it_waits_takes_it_out_of_the_queue(command: Command, session: Session) -> None:
    process = session.start(WAITS)
    assert lines_until_held(process) == "True"

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=PATIENCE_S)[1].splitlines()[-2:] == ["None", f"{128 + signal.SIGTERM} None"]
    until(lambda: command.job("run-1").get("state") == "cancelled", "it is out of the queue")


def test_an_error_of_the_callback_takes_it_out_of_the_queue(command: Command) -> None:
    def waits(job: JobStatus | None) -> None:
        if job is not None:
            raise SystemExit(9)

    with pytest.raises(SystemExit):
        attached.run(["true"], waits, num_gpus=0, hold=True)

    assert command.job("run-1").get("state") == "cancelled"


@pytest.mark.usefixtures("command")
def test_a_command_in_this_processs_place_cannot_be_queued_again() -> None:
    with pytest.raises(UsageError, match="--requeue"):
        attached.run(["true"], num_gpus=0, requeue=True)
