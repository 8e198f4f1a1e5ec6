"""What runs were measured to need, as people meet it: `plan` advises it, and `auto` asks for it.

On a stand-in p3.8xlarge whose driver shows what processes take; the programs leave their own peaks as frameworks do.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import TOYS, Command
from tests.patience import until
from tests.stand_in.library import StandIn, StandInHost

HOST = "gpus 4\n"
CONTEXT = 212


class Lab:
    """A command line with a daemon, a workload of two roles, and what its replicas need, which a test chooses."""

    def __init__(self, home: Path, host: StandInHost) -> None:
        library = {name: host.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")}
        self.command, self.host, self.home = Command(home, library), host, home
        program = f'command = ["{{python}}", "{TOYS / "measured.py"}", "{home}"]'
        self.workload = home / "workload.toml"
        self.workload.write_text(
            f"""
            name = "lab"
            [roles.learner]
            {program}
            memory = {{ min = "2GiB", share = 0.75 }}
            [roles.actor]
            count = 32
            {program}
            memory = {{ min = "512MiB" }}
            restart = {{ policy = "on-failure", max = 5 }}
            [job]
            leader = "learner"
            stop_grace = 2
            """
        )

    def needs(self, **mib: int) -> None:
        (self.home / "needs.json").write_text(json.dumps(mib))

    def job(self, job: str) -> Any:
        [found] = self.command.jobs(job).values()
        return found

    def shows(self, job: str, mib: dict[str, int]) -> None:
        """Have the driver show each replica with what its framework has, and its context, until that is measured."""

        def all_run() -> bool:
            states = {one["state"] for one in self.job(job)["replicas"]}  # none before it has its turn
            return states == {"running"}

        until(all_run, f"{job} runs")
        replicas = self.job(job)["replicas"]
        lines = [f"process {one['device_index']} C {one['pid']} {mib[one['role']] + CONTEXT}\n" for one in replicas]
        self.host.change(HOST + "".join(lines))

        def measured() -> bool:
            usage = [one["usage"][-1] for one in self.job(job)["replicas"]]
            return all(each["context_mib"] == CONTEXT for each in usage)

        until(measured, f"the contexts of {job} are measured")

    def may_end(self) -> None:
        """Let programs end when they have shown what they take."""
        (self.home / "go").touch()

    def ends(self, job: str) -> None:
        self.may_end()
        assert self.command.run("wait", job).returncode == 0, self.job(job)
        (self.home / "go").unlink()
        self.host.change(HOST)

    def launch(self, *words: str) -> str:
        started = self.command.run("launch", str(self.workload), "-d", *words)
        assert started.returncode == 0, started.stdout + started.stderr
        return str(max((self.command.state / "jobs").iterdir(), key=lambda path: int(path.name.split("-")[1])).name)

    def limits(self, role: str) -> list[int]:
        """The limits of the starts of a role's replicas, in their order."""
        path = self.home / "limits.txt"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [int(limit) for name, _, limit in lines if name.startswith(f"{role}.")]

    def plan(self, *words: str) -> Any:
        told = self.command.run("plan", "--workload", str(self.workload), "--json", *words)
        return json.loads(told.stdout)


@pytest.fixture
def lab(tmp_path: Path, stand_in: StandIn) -> Iterator[Lab]:
    made = Lab(tmp_path, stand_in.host(HOST))
    yield made
    made.command.end()


@pytest.mark.slow
def test_three_runs_are_planned_with_and_a_fourth_that_needs_more_gets_it_after_a_lack(lab: Lab) -> None:
    mib = {"learner": 900, "actor": 188}  # of an actor with its context 400
    lab.needs(**mib)
    before = lab.plan()
    assert before["counts"] == [3, 10, 10, 10]
    assert before["measured"] == []
    for _ in range(3):
        job = lab.launch("--procs", "3")
        lab.shows(job, mib)
        lab.ends(job)

    advised = lab.plan()
    assert advised["counts"] == [3, 10, 10, 10]
    runs = "3 runs with measuredframe 1.2 on Tesla V100-SXM2-16GB"
    sums = f"256 MiB limit + {CONTEXT} MiB context, 15837 / 468 = 33 on a GPU"
    assert f"actor: measured 188 MiB of 1371 ({runs}); 96 more fit with auto, {sums}" in advised["why"]
    assert f"learner and actor: context {CONTEXT} MiB, measured: {runs}, driver 535.129.03" in advised["why"]
    actor = next(one for one in advised["measured"] if one["role"] == "actor")
    assert (actor["peak_mib"], actor["ask_mib"], actor["context"]["mib"]) == (188, 256, CONTEXT)

    most = lab.plan("--procs", "max", "--actor-memory", "auto")
    assert most["counts"] == [30, 33, 33, 33]
    size = sum(one["share_mib"] for one in most["replicas"] if one["device_index"] == 1)
    assert size == 33 * (256 + CONTEXT)

    lab.needs(learner=900, actor=388)  # with its context 600
    (lab.home / "limits.txt").unlink()
    job = lab.launch("--procs", "3", "--actor-memory", "auto")
    until(lambda: len(lab.limits("actor")) == 6, "the actors run again")
    assert sorted(lab.limits("actor")) == [256] * 3 + [512] * 3
    until(lambda: all(one["state"] == "running" for one in lab.job(job)["replicas"]), "they run")
    actors = [one for one in lab.job(job)["replicas"] if one["role"] == "actor"]
    assert {one["warning"] for one in actors} == {"out of memory at 256 MiB: again with 512"}
    assert {(one["limit_mib"], one["share_mib"], one["restarts"]) for one in actors} == {(512, 512 + CONTEXT, 1)}
    given = {tuple(each["share_mib"] for each in one["usage"]) for one in actors}
    assert given == {(256 + CONTEXT, 512 + CONTEXT)}
    lab.shows(job, {"learner": 900, "actor": 388})
    lab.ends(job)
    after = lab.plan("--no-grow", "--actor-memory", "auto")
    assert {one["limit_mib"] for one in after["replicas"] if one["role"] == "actor"} == {448}


def test_auto_is_refused_until_enough_is_known_or_asks_for_what_is_named_and_retry_gets_more(lab: Lab) -> None:
    lab.needs(command=388)
    program = [sys.executable, str(TOYS / "measured.py"), str(lab.home)]
    refused = lab.command.run("run", "-d", "--memory", "auto", "--", *program)
    assert refused.returncode == 2
    assert "--memory auto: 0 runs of it on these devices are measured, and 3 are needed" in refused.stderr
    assert "auto:4GiB" in refused.stderr
    assert lab.command.run("plan", "--workload", str(lab.workload), "--actor-memory", "auto").returncode == 2
    lab.command.run("run", "-d", "--memory", "auto:300MiB", "--retry", "2", "--name", "it", "--", *program)
    until(lambda: lab.limits("command") == [300, 556], "it runs again with more")
    until(lambda: lab.job("it")["replicas"][0]["state"] == "running", "it runs")
    assert lab.job("it")["replicas"][0]["warning"] == "out of memory at 300 MiB: again with 556"
    assert "out of memory at 300 MiB: again with 556" in lab.command.run("logs", "it").stdout
    lab.ends("it")
    assert lab.job("it")["state"] == "succeeded"


def test_a_mistaken_auto_is_refused(lab: Lab) -> None:
    for wrong in ("automatic", "auto:", "auto:soon", "auto:0MiB"):
        refused = lab.command.run("run", "-d", "--memory", wrong, "--", "true")
        assert refused.returncode == 2, wrong
        assert "--memory" in refused.stderr, wrong
