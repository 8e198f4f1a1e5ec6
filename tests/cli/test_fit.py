"""`gpusched fit`: what a run of each role shows becomes what its file is to ask for.

On a stand-in host whose driver shows what processes take; the programs leave their own peaks as frameworks do.
"""

import json
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.model.workload import Workload
from gpusched.model.workload_file import parse_workload
from tests.cli.command import TOYS, until
from tests.cli.test_footprints import CONTEXT, HOST, Lab
from tests.patience import PATIENCE_S
from tests.stand_in.library import StandIn


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
    toml = printed.partition(f"for {lab.workload}:\n")[2]
    roles = {role.name: role.memory for role in written(lab, toml).roles}
    assert roles["learner"] is not None
    assert (roles["learner"].min_mib, roles["learner"].share) == (960, 7500)
    assert roles["actor"] is not None
    assert roles["actor"].min_mib == 256
    assert '# was min = "2GiB"' in toml


def test_it_ends_after_its_time_though_a_program_does_not_and_a_lack_of_memory_is_a_next_try(lab: Lab) -> None:
    lab.needs(learner=188, actor=90_000)
    found = lab.command.run("fit", str(lab.workload), "--time", "3s", "--json")
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["seconds"] >= 3
    roles = {one["role"]: one for one in report["roles"]}
    assert (roles["learner"]["ask_mib"], roles["learner"]["lacked"]) == (256, False)
    assert roles["actor"]["lacked"]
    assert roles["actor"]["ask_mib"] > roles["actor"]["limit_mib"]
    assert "out of memory" not in found.stdout
    assert written(lab, report["toml"]).role("actor").memory


def test_what_fails_for_another_reason_is_no_measure(lab: Lab) -> None:
    (lab.home / "needs.json").write_text("{}")  # the programs end with a traceback
    failed = lab.command.run("fit", str(lab.workload))
    assert failed.returncode == 1
    assert "lab-1 failed" in failed.stderr
    assert "gpusched logs lab-1" in failed.stderr
    assert "roles" not in failed.stdout


def test_ctrl_c_ends_the_run_too(lab: Lab) -> None:
    lab.needs(learner=188, actor=188)
    run = lab.command.start("fit", str(lab.workload), "--time", "1h")
    until(lambda: lab.limits("actor"), "it runs")
    run.send_signal(signal.SIGINT)
    printed, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, printed
    assert lab.job("lab-1")["state"] == "cancelled"


def test_a_workload_of_one_role_is_measured_with_the_number_of_its_file(lab: Lab) -> None:
    lab.needs(train=188)
    lab.workload.write_text(
        f"""
        name = "lab"
        [roles.train]
        command = ["{{python}}", "{TOYS / "measured.py"}", "{lab.home}"]
        devices = 1
        [job]
        leader = "train"
        stop_grace = 2
        """
    )
    found = lab.command.run("fit", str(lab.workload), "--time", "2s")
    assert found.returncode == 0, found.stderr
    assert 'memory = { min = "256MiB" }  # was devices = 1' in found.stdout


def test_without_a_gpu_nothing_is_run(tmp_path: Path, stand_in: StandIn) -> None:
    lab = Lab(tmp_path, stand_in.host("gpus 0\n"))
    refused = lab.command.run("fit", str(lab.workload))
    assert refused.returncode == 5
    assert "no GPU to measure on" in refused.stderr
    assert not lab.command.state.exists() or not list(lab.command.state.glob("jobs/*"))
    lab.command.end()
