"""A wrong argument is an error of gpusched.errors, at the call, and nothing is printed or queued."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import gpusched
from gpusched.errors import NoProgram, NotFound, UsageError
from tests.cli.command import Command

M: Final = "1x16GiB"
ANY: Final[Any] = gpusched
LEAVES: Final = """
name = "leaves"
[roles.learner]
command = ["true"]
[job]
leader = "learner"
settings = "leaves:Settings"
"""
WRONG: Final[list[Callable[[], object]]] = [
    lambda: ANY.plan(5),
    lambda: ANY.plan("no-such-workload"),
    lambda: ANY.plan(procs=3.5, machine=M),
    lambda: ANY.plan(procs=True, machine=M),
    lambda: ANY.plan(machine="no-such-machine"),
    lambda: ANY.plan(machine=5),
    lambda: ANY.plan(policy="no-such-policy", machine=M),
    lambda: ANY.plan(gpus="9", machine=M),
    lambda: ANY.plan(actor_memory=2.5, machine=M),
    lambda: ANY.plan(learner_memory=[], machine=M),
    lambda: ANY.plan(options=5, machine=M),
    lambda: ANY.plan(options={"no_such": 1}, machine=M),
    lambda: ANY.plan(options={"network": 3}, machine=M),
    lambda: ANY.plan(options={5: 1}, machine=M),
    lambda: ANY.launch(None),
    lambda: ANY.launch("snake", options={"no_such": 1}, machine=M),
    lambda: ANY.launch("snake", listen=5, machine=M),
    lambda: ANY.launch("snake", listen="here", machine=M),
    lambda: ANY.launch("snake", listen="tcp://0.0.0.0:5555", insecure=True, machine=M),
    lambda: ANY.launch("snake", insecure=True, machine=M),
    lambda: ANY.launch("snake", insecure="yes", machine=M),
    lambda: ANY.launch("averaging", listen="tcp://127.0.0.1:5555", machine=M),
    lambda: ANY.dry_run("snake", procs=3.5, machine=M),
    lambda: ANY.join(5),
    lambda: ANY.join("here", insecure=True),
    lambda: ANY.join("tcp://lab1:5555"),
    lambda: ANY.join("tcp://lab1:5555", insecure=True),
    lambda: ANY.join("tcp://127.0.0.1:5555", key="k", insecure=True),
    lambda: ANY.join("tcp://127.0.0.1:5555", key=5),
    lambda: ANY.join("tcp://127.0.0.1:5555", insecure=True, patience="soon"),
    lambda: ANY.join("tcp://127.0.0.1:5555", insecure=True, workload=5),
    lambda: ANY.join("tcp://127.0.0.1:5555", insecure=True, different="yes"),
    lambda: ANY.join("tcp://127.0.0.1:5555", insecure=True, learner_memory="1GiB"),
    lambda: ANY.submit("snake", options={"network": "no-such"}, machine=M),
    lambda: ANY.submit("snake", priority=[], machine=M),
    lambda: ANY.run("python train.py"),
    lambda: ANY.run([]),
    lambda: ANY.run(5),
    lambda: ANY.run(["true", 5], machine=M),
    lambda: ANY.run(["true"], machine=5),
    lambda: ANY.run(["true"], fraction="x", machine=M),
    lambda: ANY.run(["true"], fraction=1.5, machine=M),
    lambda: ANY.run(["true"], fraction=0.5, memory="1GiB", machine=M),
    lambda: ANY.run(["true"], memory="6", machine=M),
    lambda: ANY.run(["true"], num_gpus=-1, machine=M),
    lambda: ANY.run(["true"], processes="x", machine=M),
    lambda: ANY.run(["true"], name=5, machine=M),
    lambda: ANY.run(["true"], name=300 * "x", machine=M),
    lambda: ANY.run(["true"], priority="x", machine=M),
    lambda: ANY.run(["true"], priority=True, machine=M),
    lambda: ANY.run(["true"], priority=10**7, machine=M),
    lambda: ANY.run(["true"], priority=10**30, machine=M),
    lambda: ANY.run(["true"], after=5, machine=M),
    lambda: ANY.run(["true"], after=[5], machine=M),
    lambda: ANY.run(["true"], at=5, machine=M),
    lambda: ANY.run(["true"], at="yesterday", machine=M),
    lambda: ANY.run(["true"], at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC), machine=M),
    lambda: ANY.run(["true"], time_limit="2", machine=M),
    lambda: ANY.run(["true"], time_limit=-1, machine=M),
    lambda: ANY.run(["true"], time_limit=[1], machine=M),
    lambda: ANY.run(["true"], hold="yes", machine=M),
    lambda: ANY.run(["true"], requeue=3, machine=M),
    lambda: ANY.run(["true"], notify="", machine=M),
    lambda: ANY.run(["true"], notify=5, machine=M),
    lambda: ANY.run(["true"], notify="ftp://example.org", machine=M),
    lambda: ANY.run(["true"], notify="https://", machine=M),
    lambda: ANY.run(["true"], notify="https://a:b@example.org", machine=M),
    lambda: ANY.run(["true"], notify="true\0", machine=M),
    lambda: ANY.run(["true"], grace=-1, machine=M),
    lambda: ANY.run(["true"], grace=[1], machine=M),
    lambda: ANY.job(5),
    lambda: ANY.jobs("no-such-state"),
    lambda: ANY.jobs(5),
    lambda: ANY.jobs(ended="x"),
    lambda: ANY.jobs(ended=-1),
    lambda: ANY.status("no-such-machine"),
    lambda: ANY.status(5),
]
OF_A_JOB: Final[list[Callable[[Any], object]]] = [
    lambda job: job.wait("x"),
    lambda job: job.wait(float("nan")),
    lambda job: job.logs(5),
    lambda job: job.logs(lines=-1),
    lambda job: job.logs(lines="x"),
    lambda job: job.watch(0),
    lambda job: job.watch("x"),
    lambda job: job.watch(float("nan")),
    lambda job: job.progress(-1),
    lambda job: job.moments("x"),
]


def test_each_wrong_argument_is_a_usage_error_and_prints_nothing(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, call in enumerate(WRONG):
        with pytest.raises(UsageError):
            pytest.fail(f"call {number} of WRONG is not refused: {call()}")

    assert capfd.readouterr() == ("", "")
    assert not (command.state / "jobs").exists() or not list((command.state / "jobs").iterdir())


@pytest.mark.usefixtures("command")
def test_each_wrong_argument_of_a_method_is_a_usage_error_at_the_call() -> None:
    job = gpusched.run(["true"], num_gpus=0, hold=True)

    for number, call in enumerate(OF_A_JOB):
        with pytest.raises(UsageError):
            pytest.fail(f"call {number} of OF_A_JOB is not refused: {call(job)}")


@pytest.mark.usefixtures("command")
def test_an_unknown_keyword_is_a_type_error_that_names_the_known_ones() -> None:
    for call in (ANY.plan, ANY.dry_run, ANY.launch, ANY.submit, ANY.join):
        with pytest.raises(TypeError, match=r"'gpu'.*known: .*gpus"):
            call("snake", gpu="0")
    with pytest.raises(TypeError, match=r"'mem'.*memory"):
        ANY.run(["true"], mem="1GiB")


@pytest.mark.usefixtures("command")
def test_what_is_not_there_is_an_error_of_the_tree() -> None:
    with pytest.raises(NotFound):
        gpusched.job("no-such-job")
    with pytest.raises(NotFound):
        gpusched.run(["true"], num_gpus=0, after="no-such-job")
    with pytest.raises(NoProgram):
        gpusched.run(["no-such-program"], num_gpus=0)


@pytest.mark.usefixtures("command")
def test_a_settings_module_that_exits_is_an_error_and_no_end_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "leaves.toml").write_text(LEAVES)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match="leaves:Settings"):
        gpusched.launch("leaves.toml", options={"x": 1})
