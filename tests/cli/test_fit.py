"""`gpusched fit`: what a run of each role shows becomes what its file is to ask for.

On a stand-in host whose driver shows what processes take; the programs leave their own peaks as frameworks do.
"""

import json
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusched.model.workload import Workload
from gpusched.model.workload_file import parse_workload
from tests.cli.command import TOYS
from tests.cli.test_footprints import CONTEXT, HOST, Lab
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn

TIMES = (3, 20, 90)
"""Seconds that a run is given: on a slow host its programs may not have begun when the first are over."""


@pytest.fixture
def lab(tmp_path: Path, stand_in: StandIn) -> Iterator[Lab]:
    made = Lab(tmp_path, stand_in.host(HOST))
    yield made
    made.command.end()


def written(lab: Lab, toml: str) -> Workload:
    """The workload whose file has these tables in place of its own lines."""
    document = tomllib.loads(lab.workload.read_text())
    for role, table in tomllib.loads(toml)["roles"].items():
        document["roles"][role] |= table
    return parse_workload(document, lab.workload)


def measured(lab: Lab) -> Any:
    """What a run found that lasted long enough for each role to show what it needs."""
    report = {}
    for seconds in TIMES:
        found = lab.command.run("fit", str(lab.workload), "--time", f"{seconds}s", "--json")
        assert found.returncode == 0, found.stderr
        report = json.loads(found.stdout)
        assert report["seconds"] >= seconds
        if all(one["ask_mib"] or one["lacked"] for one in report["roles"]):
            break
    return report


def test_one_replica_of_each_role_is_measured_and_its_file_gets_what_it_needed(lab: Lab) -> None:
    mib = {"learner": 900, "actor": 188}
    lab.needs(**mib)
    run = lab.command.start("fit", str(lab.workload), "--time", "1h")
    until(lambda: lab.limits("actor"), "it runs")
    (job,) = (path.name for path in (lab.command.state / "jobs").iterdir())
    replicas = lab.job(job)["replicas"]
    assert [(one["name"], one["device_index"]) for one in replicas] == [("learner.0", 0), ("actor.0", 1)]
    assert all(one["limit_mib"] > 15_000 for one in replicas), "each has all of a device"
    lab.shows(job, mib)
    lab.ends(job)
    printed, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, printed
    rows = {line.split()[0]: " ".join(line.split()) for line in printed.splitlines() if "V100" in line}
    assert f"1.1 GiB 900 MiB {CONTEXT} MiB" in rows["learner"]
    assert f"400 MiB 188 MiB {CONTEXT} MiB" in rows["actor"]
    assert rows["actor"].endswith("measuredframe 1.2")
    assert f"{job} reported no progress: if its work had not begun, run it for longer: --time 3m" in printed
    toml = printed.partition(f"for {lab.workload}:\n")[2]
    roles = {role.name: role.memory for role in written(lab, toml).roles}
    assert roles["learner"] is not None
    assert (roles["learner"].min_mib, roles["learner"].share) == (960, 7500)
    assert roles["actor"] is not None
    assert roles["actor"].min_mib == 256
    assert '# was min = "2GiB"' in toml


def test_it_ends_after_its_time_though_a_program_does_not_and_what_no_device_has_is_not_asked_for(lab: Lab) -> None:
    lab.needs(learner=188, actor=90_000)
    report = measured(lab)
    roles = {one["role"]: one for one in report["roles"]}
    assert (roles["learner"]["ask_mib"], roles["learner"]["lacked"]) == (256, False)
    assert (roles["actor"]["ask_mib"], roles["actor"]["lacked"]) == (None, True)
    assert list(tomllib.loads(report["toml"])["roles"]) == ["learner"]


def test_each_role_runs_once_without_its_maximum_and_without_what_earlier_runs_would_give(lab: Lab) -> None:
    lab.needs(learner=188, actor=3000, evaluator=188)
    program = f'command = ["{{python}}", "{TOYS / "measured.py"}", "{lab.home}"]'
    text = lab.workload.read_text().replace(
        "[job]",
        f"""
[roles.evaluator]
count = 8
{program}
memory = {{ min = "auto" }}
[job]""",
    )
    text = text.replace('memory = { min = "512MiB"', 'memory = { min = "512MiB", max = "1GiB"')
    assert 'max = "1GiB"' in text
    lab.workload.write_text(text)
    report = measured(lab)
    assert sorted(one["name"] for one in lab.job(report["job"])["replicas"]) == ["actor.0", "evaluator.0", "learner.0"]
    roles = {one["role"]: one for one in report["roles"]}
    assert roles["actor"]["limit_mib"] > 3000
    assert {one["device"] for one in report["roles"]} == {"Tesla V100-SXM2-16GB"}, "also before the first poll"
    memory = {role.name: role.memory for role in written(lab, report["toml"]).roles}
    assert memory["actor"] is not None
    assert (memory["actor"].min_mib >= 3000, memory["actor"].max_mib) == (True, None)
    assert 'max = "1GiB"' in report["toml"], "what it was"
    assert memory["evaluator"] is not None
    assert (memory["evaluator"].min_mib, memory["evaluator"].first_mib) == (256, None)


def test_a_replica_that_fails_and_is_started_again_is_no_measure_also_where_the_time_is_up(lab: Lab) -> None:
    lab.needs(learner=188, actor=188)
    fails = 'command = ["sh", "-c", "sleep 0.3; exit 1"]'
    text = lab.workload.read_text().replace("max = 5", "max = 1000")
    begin = text.index("command", text.index("[roles.actor]"))
    lab.workload.write_text(text[:begin] + fails + text[text.index("\n", begin) :])
    for seconds in TIMES:
        failed = lab.command.run("fit", str(lab.workload), "--time", f"{seconds}s")
        if failed.returncode == 1:
            break
    assert failed.returncode == 1
    assert "failed" in failed.stderr
    assert "gpusched logs lab-" in failed.stderr
    assert "roles" not in failed.stdout


def test_a_run_whose_work_had_begun_is_shown_without_a_doubt(lab: Lab) -> None:
    lab.needs(train=188)
    one_role(lab, "devices = 1")
    text = lab.workload.read_text()
    begin = text.index("command")
    program = lab.home / "reports.sh"
    program.write_text("""echo '{"step": 7}' > $GPUSCHED_RUN_DIR/progress.jsonl""")
    command = f'command = ["sh", "{program}"]'
    lab.workload.write_text(text[:begin] + command + text[text.index("\n", begin) :])
    found = lab.command.run("fit", str(lab.workload), "--time", "1h")
    assert found.returncode == 0, found.stderr
    assert "lab ran for" in found.stdout
    assert "reported no progress" not in found.stdout


def test_a_role_with_several_devices_stays_as_it_is(lab: Lab) -> None:
    lab.needs(train=188)
    one_role(lab, "devices = 2")
    found = lab.command.run("fit", str(lab.workload), "--time", "2s")
    assert found.returncode == 0, found.stderr
    assert "train: it has several whole GPUs, and its file stays as it is" in found.stdout
    assert "memory =" not in found.stdout


def test_it_is_measured_from_python_too(lab: Lab) -> None:
    lab.needs(learner=900, actor=188)
    code = f"""
from gpusched.api import fitting
from gpusched.errors import UsageError
for seconds in {TIMES}:
    found = fitting.fit({str(lab.workload)!r}, time=seconds)
    if all(one.ask_mib for one in found.roles): break
print({{one.role: one.ask_mib for one in found.roles}})
print(found)
for wrong in (0, "max", -1):
    try: fitting.begin({str(lab.workload)!r}, procs=wrong)
    except UsageError as error: print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=lab.command.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "{'learner': 960, 'actor': 256}" in done.stdout
    assert "lab ran for" in done.stdout
    assert done.stdout.count("procs: ") == 3


def test_who_can_no_longer_be_written_to_leaves_no_job(lab: Lab) -> None:
    lab.needs(learner=188, actor=188)
    argv = [sys.executable, "-m", "gpusched", "fit", str(lab.workload), "--time", "1h"]
    run = subprocess.Popen(argv, env=lab.command.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stderr is not None
    run.stderr.close()
    run.wait(PATIENCE_S)
    until(lambda: lab.job("lab-1")["state"] == "cancelled", "it was stopped")


def test_what_fails_for_another_reason_is_no_measure(lab: Lab) -> None:
    (lab.home / "needs.json").write_text("{}")  # the programs end with a traceback
    failed = lab.command.run("fit", str(lab.workload))
    assert failed.returncode == 1
    assert "lab-1 failed" in failed.stderr
    assert "gpusched logs lab-1" in failed.stderr
    assert "roles" not in failed.stdout


@pytest.mark.parametrize("when", ["queued", "runs"])
def test_ctrl_c_ends_the_run_too(lab: Lab, when: str) -> None:
    lab.needs(learner=188, actor=188)
    run = lab.command.start("fit", str(lab.workload), "--time", "1h")
    jobs = lab.command.state / "jobs"
    until(lambda: lab.limits("actor") if when == "runs" else list(jobs.glob("lab-*")), "it is there")
    run.send_signal(signal.SIGINT)
    printed, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, printed
    assert "lab-1 was stopped, and nothing is measured" in printed
    assert lab.job("lab-1")["state"] == "cancelled"


def one_role(lab: Lab, needs: str) -> None:
    """A workload of one role, that needs this."""
    lab.workload.write_text(
        f"""
        name = "lab"
        [roles.train]
        command = ["{{python}}", "{TOYS / "measured.py"}", "{lab.home}"]
        {needs}
        [job]
        leader = "train"
        stop_grace = 2
        """
    )


def test_a_workload_of_one_role_is_measured(lab: Lab) -> None:
    lab.needs(train=188)
    one_role(lab, "devices = 1")
    lab.may_end()
    found = lab.command.run("fit", str(lab.workload), "--time", "1h")
    assert found.returncode == 0, found.stderr
    assert 'memory = { min = "256MiB" }  # in the place of: devices = 1' in found.stdout


def test_without_a_gpu_nothing_is_run(tmp_path: Path, stand_in: StandIn) -> None:
    lab = Lab(tmp_path, stand_in.host("gpus 0\n"))
    refused = lab.command.run("fit", str(lab.workload))
    assert refused.returncode == 5
    assert "no GPU to measure on" in refused.stderr
    assert not lab.command.state.exists() or not list(lab.command.state.glob("jobs/*"))
    lab.command.end()
