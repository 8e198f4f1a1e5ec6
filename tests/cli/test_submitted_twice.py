"""A job that was taken has an id that its submitter knows: no end of the daemon loses it, or makes a job run twice."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gpusched.control.client import Client, Unanswered, control_socket, listener
from gpusched.control.messages import Answer, Selected, Submitted
from gpusched.errors import GpuschedError, HostFault, NoDaemon, UsageError
from gpusched.execution import daemon_link
from gpusched.execution.daemon_link import Link
from gpusched.execution.submission import command_submission
from gpusched.model.selection import Selection
from gpusched.model.status import JobState, JobStatus
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.cli.foreground import but_for_the_wait
from tests.cli.queue import jobs
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import ROOT

STATUS = JobStatus(id="run-2", workload="run", state=JobState.QUEUED, counts=(), replicas=(), run_dir="/run-2")
HELD = ("run", "-d", "--json", "--hold", "--num-gpus", "0", "--", "true")


@contextmanager
def mortal(command: Command, moment: str = "saved") -> Iterator["subprocess.Popen[bytes]"]:
    """A daemon that is killed at that moment."""
    command.state.mkdir(mode=0o700, parents=True)
    program = Path(__file__).with_name("mortal_daemon.py")
    process = subprocess.Popen([sys.executable, str(program), moment], env={**command.env, "PYTHONPATH": str(ROOT)})
    try:
        socket = control_socket(load_settings(command.env))
        until(lambda: listener(socket), "the daemon listens")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("moment", [(), ("--hold",)], ids=["that-may-run", "that-is-held"])
def test_a_job_whose_answer_was_lost_is_queued_once(moment: tuple[str, ...], command: Command) -> None:
    with mortal(command) as daemon:
        told = command.run("run", "-d", *moment, "--num-gpus", "0", "--", "sh", "-c", "true")
        assert daemon.wait() == -9, "it was killed with the answer in its hands"

    assert (told.returncode, told.stdout) == (0, "run-1\n"), told.stderr
    assert list(jobs(command)) == ["run-1"]


def test_a_command_whose_answer_was_lost_runs_once(command: Command) -> None:
    with mortal(command) as daemon:
        told = command.run("run", "--num-gpus", "0", "--", "echo", "once")
        assert daemon.wait() == -9, "it was killed with the answer in its hands"

    assert (told.returncode, told.stdout, but_for_the_wait(told.stderr)) == (0, "once\n", "")
    assert list(jobs(command)) == ["run-1"]


def test_after_the_acknowledgement_nothing_is_asked_that_could_lose_the_id(command: Command) -> None:
    with mortal(command, "asked"):
        told = command.run(*HELD)

    assert told.returncode == 0, told.stdout
    job = json.loads(told.stdout)
    assert (job["id"], job["state"], job["held"], job["command"]) == ("run-1", "queued", True, ["true"])
    command.daemon()
    assert list(jobs(command)) == ["run-1"]


def test_where_no_other_daemon_can_be_asked_the_error_says_that_the_job_may_be_queued(command: Command) -> None:
    with mortal(command, "alone"):
        told = command.run(*HELD)
    (command.state / "daemon.log").rmdir()

    error = json.loads(told.stdout)["error"]
    assert (told.returncode, error["code"]) == (5, "host-fault")
    assert "may have queued the job all the same" in error["message"]
    assert "gpusched ps --all" in error["hint"]
    command.daemon()
    assert list(jobs(command)) == ["run-1"]


def submit_through(
    link: Link, daemons: Sequence[tuple[str, GpuschedError | Answer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submit a job to one daemon after the other: each ends, or answers, where its own method of Client is called."""
    left = list(daemons)

    def answer(method: str, *_: object) -> Answer | None:
        if left[0][0] != method:
            return None
        found = left.pop(0)[1]
        if isinstance(found, GpuschedError):
            raise found
        return found

    monkeypatch.setattr(Client, "connect", partial(answer, "connect"))
    monkeypatch.setattr(Client, "ask", partial(answer, "ask"))
    monkeypatch.setattr(daemon_link, "_SUBMITTED_AGAIN_S", 0.0)
    monkeypatch.setattr(daemon_link, "_AWAY_S", 0.0)
    if daemons[0] is SELECTED:
        link.select(Selection(names=("run-1",)))
    link.submit(command_submission(["true"], {"num_gpus": "0"}, {}))


GONE = ("ask", Unanswered("it ended", "see gpusched ps", gone=True))
SELECTED = ("ask", Selected(ids=("run-1",)))
WAYS = pytest.mark.parametrize("lasting", [False, True], ids=["asked-once", "lasting"])


@WAYS
@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("ask", NoDaemon("the daemon is of another version")),
        ("ask", HostFault("no room", "make room")),
        ("connect", NoDaemon("the daemon has not begun")),
        ("connect", HostFault("no room", "make room")),
        ("connect", UsageError("config.toml is wrong", "mend it")),
    ],
)
def test_an_error_of_the_next_daemon_says_too_that_the_job_may_be_queued(
    method: str, error: GpuschedError, *, lasting: bool, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(load_settings(command.env), lasting=lasting)
    before = (SELECTED, GONE) if lasting else (GONE,)
    with pytest.raises(type(error), match="may have queued the job all the same") as caught:
        submit_through(link, [*before, (method, error)], monkeypatch)
    assert isinstance(error, NoDaemon) or str(caught.value.hint).startswith(f"{error.hint}; ")


@WAYS
@pytest.mark.parametrize("before", [(), (GONE,)])
def test_what_a_daemon_refuses_is_not_queued(
    before: tuple[tuple[str, GpuschedError], ...],
    *,
    lasting: bool,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(load_settings(command.env), lasting=lasting)
    refused = ("ask", UsageError("the job names no directory", "name one"))
    with pytest.raises(UsageError, match=r"^the job names no directory \(name one\)$"):
        submit_through(link, [*([SELECTED] if lasting else []), *before, refused], monkeypatch)


def test_a_lasting_link_asks_a_daemon_that_is_late_again(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    late = ("ask", Unanswered("it does not answer", "jobs go on", gone=False))
    taken = ("ask", Submitted(id="run-2", job=STATUS))
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    submit_through(Link(load_settings(command.env), lasting=True), [SELECTED, late, taken], monkeypatch)
    with pytest.raises(NoDaemon, match="may have queued the job all the same"):
        submit_through(Link(load_settings(command.env)), [late, taken], monkeypatch)


def test_an_id_that_cannot_be_printed_is_in_the_error(command: Command) -> None:
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            [sys.executable, "-m", "gpusched", "run", "-d", "--hold", "--num-gpus", "0", "--", "true"],
            env=command.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    assert told.returncode == 5
    assert "run-1 is in the queue, and its id cannot be written" in told.stderr


def test_every_job_is_printed_once_while_the_daemon_is_killed_at_random(command: Command) -> None:
    seed = random.SystemRandom().getrandbits(32)
    dice, socket = random.Random(seed), control_socket(load_settings(command.env))  # noqa: S311 (moments to kill at)
    printed: list[str] = []
    lost: list[str] = []

    def submit() -> None:
        for _ in range(6):
            told = command.run(*HELD)
            if told.returncode == 0:
                printed.append(json.loads(told.stdout)["id"])
            else:
                lost.append(told.stdout)

    clients = [threading.Thread(target=submit) for _ in range(3)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        if pid := listener(socket):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clients[dice.randrange(3)].join(dice.uniform(0.0, 1.0))

    command.daemon()
    stored = sorted(jobs(command))
    assert sorted(printed) == sorted(set(printed)), f"seed {seed}"
    assert set(printed) <= set(stored), f"seed {seed}"
    assert all("may have queued" in told for told in lost if "queued" in told), lost
    assert len(stored) - len(printed) <= sum("may have queued" in told for told in lost), f"seed {seed}"
