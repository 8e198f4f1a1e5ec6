"""The numbers for Prometheus: which series there are of a moment, and which there must not be."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gpusched.execution.snapshot import Snapshot
from gpusched.metrics.dcgm import jobs_by_gpu
from gpusched.metrics.families import MOST_JOBS, MOST_REPLICAS, families
from gpusched.metrics.text import text_of
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease, holders
from gpusched.model.status import ArrayStatus, JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.model.usage import Usage
from tests.patience import PATIENCE_S

DOCS = Path(__file__).parents[2] / "docs"
MIB = 1 << 20
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def device(index: int, *processes: DeviceProcess, **fields: Any) -> Device:
    usual: dict[str, Any] = {"memory_total_mib": 16160, "memory_used_mib": 1000, "utilization_percent": 37}
    return Device(index=index, uuid=f"GPU-{index}", name="V100", processes=processes, **(usual | fields))


def job(number: int, *replicas: ReplicaStatus, **fields: Any) -> JobStatus:
    usual: dict[str, Any] = {"state": JobState.RUNNING, "created": 900.0, "started": 950.0, "user": "ada"}
    return JobStatus(
        id=f"snake-{number}",
        workload="snake",
        counts=(),
        replicas=replicas,
        run_dir=f"/j/{number}",
        **(usual | fields),
    )


def actor(rank: int, **fields: Any) -> ReplicaStatus:
    usual: dict[str, Any] = {"state": ReplicaState.RUNNING, "device_uuid": "GPU-0", "limit_mib": 1000}
    return ReplicaStatus(name=f"actor.{rank}", role="actor", share_mib=1450, **(usual | fields))


def lease(number: int, rank: int, pid: int | None = None, **fields: Any) -> Lease:
    usual: dict[str, Any] = {"device_uuid": "GPU-0", "share_mib": 1450, "run_dir": f"/j/{number}"}
    return Lease(job=f"snake-{number}", replica=f"actor.{rank}", pid=pid, **(usual | fields))


def moment(devices: tuple[Device, ...], jobs: tuple[JobStatus, ...] = (), leases: tuple[Lease, ...] = ()) -> Snapshot:
    inventory = Inventory(host="lab", source="nvml", devices=devices, cpus=(0,), driver_version="535.1")
    return Snapshot(inventory=inventory, jobs=jobs, leases=leases, holders=holders(leases), time=1000.0)


def series(seen: Snapshot) -> Series:
    text = text_of(families(seen, "0.1.0", 200))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Series, name: str, **labels: str) -> float | None:
    return found.get((f"gpusched_{name}", tuple(sorted(labels.items()))))


def named(found: Series, name: str) -> list[Mapping[str, str]]:
    return [dict(labels) for each, labels in found if each == f"gpusched_{name}"]


def test_a_replica_has_what_it_was_given_and_what_it_uses() -> None:
    busy = DeviceProcess(pid=7, memory_mib=400, sm_percent=12)
    seen = moment(
        (
            device(0, busy, energy_j=77, slowed_by=("heat",)),
            device(1, health="error", problem="drained since 09:12, after a fault: Xid 79"),
        ),
        (job(4, actor(0, used_mib=400, restarts=2, usage=(Usage(attempt=0, seconds=1.0, peak_mib=300),))),),
        (lease(4, 0, 7),),
    )
    found = series(seen)
    about = {"job_id": "snake-4", "role": "actor", "replica": "actor.0", "uuid": "GPU-0"}
    for name, mib in {"share": 1450, "limit": 1000, "used": 400, "peak": 300}.items():
        assert of(found, f"replica_memory_{name}_bytes", **about) == mib * MIB
    assert of(found, "replica_sm_utilization_ratio", **about) == 0.12
    assert of(found, "replica_restarts_total", **about) == 2
    assert of(found, "device_memory_leased_bytes", uuid="GPU-0", user="ada") == 1450 * MIB
    assert of(found, "device_memory_plannable_bytes", uuid="GPU-0") == (16160 - 323 - 1450 - 600) * MIB
    assert of(found, "device_memory_foreign_bytes", uuid="GPU-0") == 600 * MIB
    assert of(found, "device_energy_joules_total", uuid="GPU-0") == 77
    assert of(found, "device_slowed", uuid="GPU-0", reason="heat") == 1
    assert of(found, "device_healthy", uuid="GPU-1") == 0
    assert [of(found, "device_drained", uuid="GPU-1", by=by) for by in ("person", "fault")] == [0, 1]
    assert [of(found, "device_drained", uuid="GPU-0", by=by) for by in ("person", "fault")] == [0, 0]
    assert of(found, "job_wait_seconds", job_id="snake-4") == 50


def test_what_is_not_known_has_no_sample() -> None:
    unknown = device(0, DeviceProcess(pid=7), memory_used_mib=None, utilization_percent=None)
    found = series(moment((unknown,), (job(4, actor(0)),), (lease(4, 0, 7),)))
    names = {name for name, _ in found}
    for name in ("device_memory_used_bytes", "device_utilization_ratio", "device_energy_joules_total"):
        assert f"gpusched_{name}" not in names
    for name in ("replica_memory_used_bytes", "replica_memory_peak_bytes", "replica_sm_utilization_ratio"):
        assert f"gpusched_{name}" not in names
    assert "gpusched_job_progress_step" not in names


def test_what_has_ended_and_what_waits_has_no_series_of_its_own() -> None:
    jobs = (
        job(1, actor(0, state=ReplicaState.EXITED), state=JobState.SUCCEEDED, ended=990.0),
        *(job(number, state=JobState.QUEUED, started=None) for number in range(2, 9000)),
        job(9001, state=JobState.QUEUED, started=None, held=True, created=1.0),
        job(9002, state=JobState.RUNNING, array=ArrayStatus(count=100, waiting=60, live=2)),
        job(9003, actor(0), actor(1, state=ReplicaState.EXITED)),
    )
    found = series(moment((device(0),), jobs))
    assert of(found, "jobs", state="queued") == 8998 + 1 + 60
    assert of(found, "jobs", state="running") == 1
    assert [labels["job_id"] for labels in named(found, "job_info")] == ["snake-9003"]
    assert [labels["replica"] for labels in named(found, "replica_memory_share_bytes")] == ["actor.0"]
    assert of(found, "queue_oldest_wait_seconds") == 100
    assert len(found) < 50


def test_the_longest_wait_is_of_what_may_start_members_of_arrays_too() -> None:
    array = job(1, state=JobState.RUNNING, array=ArrayStatus(count=9, waiting=6, live=2), created=700.0)
    later = job(2, state=JobState.QUEUED, started=None, created=1.0, at=2000.0)
    begun = job(3, state=JobState.QUEUED, started=None, created=1.0, at=990.0)
    for jobs, longest in (((array,), 300), ((later,), 0), ((begun,), 10), ((replace(array, held=True),), 0)):
        assert of(series(moment((device(0),), jobs)), "queue_oldest_wait_seconds") == longest


def test_without_a_daemon_the_queue_is_up_only_if_nothing_waits() -> None:
    waits = job(1, state=JobState.QUEUED, started=None)
    for jobs, runs, problem, up in (
        ((waits,), True, None, 1),
        ((waits,), False, None, 0),
        ((), False, None, 1),
        ((), True, "it hangs", 0),
    ):
        seen = replace(moment((device(0),), jobs), daemon_runs=runs, queue_problem=problem)
        found = series(seen)
        assert of(found, "queue_up") == up
        assert (of(found, "queue_oldest_wait_seconds") is None) == (up == 0)


def test_series_are_bounded_and_it_is_known_how_many_are_left_out() -> None:
    replicas = tuple(actor(rank) for rank in range(MOST_REPLICAS + 5))
    jobs = (job(0, *replicas), *(job(number) for number in range(1, MOST_JOBS + 3)))
    found = series(moment((device(0),), jobs))
    assert len(named(found, "job_info")) == MOST_JOBS
    assert len(named(found, "replica_memory_share_bytes")) == MOST_REPLICAS
    assert (of(found, "series_omitted", kind="job"), of(found, "series_omitted", kind="replica")) == (3, 5)


def test_simulated_memory_is_none() -> None:
    found = series(moment((device(0),), (job(4, actor(0), simulated=True),)))
    assert not named(found, "replica_memory_share_bytes")
    assert len(named(found, "job_info")) == 1


@given(
    name=st.text(st.characters(), max_size=30),
    value=st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.none(), st.just(10**400)),
)
def test_whatever_a_job_is_called_and_reports_the_text_is_one_that_prometheus_reads(name: str, value: object) -> None:
    found = series(moment((device(0),), (job(4, name=name, group="\udce9", progress={"step": value}),)))
    (about,) = named(found, "job_info")
    assert about["name"] == name.encode("utf-8", "replace").decode()
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value != 10**400
    assert (of(found, "job_progress_step", job_id="snake-4") is not None) == is_number


def test_jobs_on_the_instances_of_a_gpu_are_those_of_the_gpu() -> None:
    whole, part = device(0), replace(device(1), uuid="MIG-1", mig_index=2)
    leases = (lease(4, 0), lease(4, 1), lease(5, 0, user="bob"), lease(6, 0, device_uuid="MIG-1"))
    found = jobs_by_gpu(moment((whole, device(1), part), (), leases))
    assert found == {"0": "snake-4\nbob/snake-5\n", "1": "snake-6\n"}
    assert jobs_by_gpu(moment((whole,))) == {"0": ""}


def all_names() -> set[str]:
    """Every family there is: a moment in which all is known."""
    numbers = ("memory_reserved_mib", "temperature_c", "power_w", "power_limit_w", "energy_j", "ecc_errors")
    known = device(
        0, DeviceProcess(pid=7, memory_mib=1, sm_percent=1), slowed_by=("heat",), **dict.fromkeys(numbers, 1)
    )
    usage = (Usage(attempt=0, seconds=1.0, peak_mib=1),)
    one = job(4, actor(0, used_mib=1, usage=usage), idle_since=1.0, progress={"step": 1, "score": 2.0})
    return {family.name for family in families(moment((known,), (one,), (lease(4, 0, 7),)), "0", 200)}


def test_the_page_names_every_family_and_no_other() -> None:
    page = (DOCS / "metrics.md").read_text().partition("## The names")[2].partition("## As a service")[0]
    documented = set()
    for row in re.findall(r"^\| (`gpusched_.*?) \|", page, re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", row)
        stem = re.sub(r"_[a-z]+_bytes$", "", first)
        documented |= {first, *(stem + other if other.startswith("_") else other for other in others)}
    assert documented == all_names()


def test_the_board_and_the_alerts_ask_for_families_that_there_are(tmp_path: Path) -> None:
    board = json.loads((DOCS / "metrics" / "board.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = (DOCS / "metrics" / "alerts.yml").read_text()
    asked = set(re.findall(r"gpusched_\w+", " ".join(queries) + " ".join(re.findall(r"expr: (.*)", alerts))))
    assert asked <= all_names()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) == 18
    rules = [{"record": f"panel:{number}", "expr": expr.replace("$host", "lab")} for number, expr in enumerate(queries)]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "board.yml"))
    promtool("check", "rules", str(DOCS / "metrics" / "alerts.yml"))
    promtool("test", "rules", str(DOCS / "metrics" / "alerts_test.yml"))


def test_promtool_has_nothing_to_say_about_the_text() -> None:
    seen = moment((device(0, energy_j=1),), (job(4, actor(0)),), (lease(4, 0),))
    promtool("check", "metrics", text=text_of(families(seen, "0.1.0", 200)))


def promtool(*arguments: str, text: str | None = None) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [tool, *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
