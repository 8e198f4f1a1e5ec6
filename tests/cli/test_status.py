"""`gpusched status` as people and programs see it, on hosts with GPUs that a stand-in library describes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusched.leases.directory import LeaseDirectory, LeaseHandle
from gpusched.linux.processes import boot_id, start_time
from gpusched.model.lease import Lease
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus
from tests.stand_in.library import EIGHT_A100, FOUR_V100, MIXED, SIXTY_FOUR, StandIn, StandInHost
from tests.supervisor.leasing import NOBODY, Fork, for_all_users, share

STATUS = ["-m", "gpusched", "status"]
UUID = "GPU-cafe{:04x}-5ca1-ab1e-0000-00000000da7a"
NAMED_KEYS = {
    "host": (),
    "driver_version": (),
    "cuda_version": (),
    "source": (),
    "devices": (
        *("index", "uuid", "name", "memory_total_mib", "memory_used_mib", "memory_reserved_mib", "memory_leased_mib"),
        *("utilization_percent", "temperature_c", "power_w", "power_limit_w", "fan_percent", "compute_mode"),
        *("slowed_by", "energy_j"),
        *("persistence_mode", "mig_mode", "ecc_errors", "health", "processes"),
    ),
    "jobs": ("id", "workload", "state", "counts", "replicas", "progress"),
}
PROCESS_KEYS = {"pid", "user", "command", "memory_mib", "sm_percent", "job", "replica", "share_mib"}
REPLICA_KEYS = {"name", "state", "pid", "device_index", "limit_mib", "used_mib", "restarts"}
GPUSTAT = {
    "index": "index",
    "uuid": "uuid",
    "name": "name",
    "temperature.gpu": "temperature_c",
    "fan.speed": "fan_percent",
    "utilization.gpu": "utilization_percent",
    "power.draw": "power_w",
    "enforced.power.limit": "power_limit_w",
    "memory.used": "memory_used_mib",
    "memory.total": "memory_total_mib",
}


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Real processes, each the head of a process group, that hold devices in the scenarios."""
    code = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True); child.wait()"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) for _ in range(3)
    ]
    yield running
    for each in running:
        os.killpg(each.pid, 9)
        each.communicate()


def replica(number: int, device: int | None, pid: int | None, **changes: object) -> ReplicaStatus:
    fields: dict[str, object] = {
        "name": f"actor.{number}",
        "role": "actor",
        "state": ReplicaState.RUNNING,
        "pid": pid,
        "device_index": device,
        "device_uuid": None if device is None else UUID.format(device),
        "limit_mib": 1133,
        "share_mib": 1583,
    }
    return ReplicaStatus(**(fields | changes))  # type: ignore[arg-type]


def save_job(state_dir: Path, job: str, replicas: Sequence[ReplicaStatus], **changes: object) -> None:
    """Write a job's directory as a supervisor does; this process stands for the supervisor, so the job lives.

    It has no leases: see hold_leases.
    """
    folder = state_dir / "jobs" / job
    folder.mkdir(parents=True)
    fields: dict[str, object] = {
        "id": job,
        "workload": job.rpartition("-")[0],
        "state": JobState.RUNNING,
        "counts": (1, 2),
        "replicas": tuple(replicas),
        "run_dir": str(folder),
        "created": time.time() - 60,
        "supervisor_pid": os.getpid(),
        "supervisor_start": start_time(os.getpid()),
        "boot_id": boot_id(),
    }
    (folder / "spec.json").write_text("{}")
    (folder / "status.json").write_bytes(msgspec.json.encode(JobStatus(**(fields | changes))))  # type: ignore[arg-type]
    (folder / "progress.jsonl").write_text('{"time": 3, "step": 1200, "steps_per_s": 400, "score": 7.25}\n')


def hold_leases(state_dir: Path, job: str, replicas: Sequence[ReplicaStatus]) -> LeaseHandle:
    """Commit what the replicas of a saved job have; it lasts until the hold is withdrawn."""
    leases = [
        Lease(device_uuid=one.device_uuid, share_mib=one.share_mib, job=job, replica=one.name)
        for one in replicas
        if one.device_uuid is not None
    ]
    directory = LeaseDirectory(state_dir / "leases")
    with directory.locked():
        return directory.commit(job, leases, state_dir / "jobs" / job)


def places(state_dir: Path) -> dict[str, str]:
    return {"GPUSCHED_STATE_DIR": str(state_dir), "GPUSCHED_LEASE_DIR": str(state_dir / "leases")}


def told(host: StandInHost, state_dir: Path, *options: str, **env: str) -> str:
    result = host.run([*STATUS, *options], env={**places(state_dir), **env})
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def document(host: StandInHost, state_dir: Path, *options: str) -> Any:
    return json.loads(told(host, state_dir, "--json", *options))


@pytest.mark.parametrize("scenario", [FOUR_V100, EIGHT_A100, MIXED, SIXTY_FOUR], ids=["v100", "a100", "mixed", "64"])
def test_json_agrees_with_gpustat_field_by_field(
    stand_in: StandIn, tmp_path: Path, sleepers: list[subprocess.Popen[bytes]], scenario: str
) -> None:
    lists = f"process 1 C {sleepers[0].pid} 812\nprocess 1 G {sleepers[1].pid} 40\nprocess 0 C {sleepers[2].pid} 70\n"
    host = stand_in.host(scenario + lists)
    theirs = host.json(["-m", "gpustat", "--json"])
    mine = document(host, tmp_path)
    assert mine["driver_version"] == theirs["driver_version"]
    devices = [device for device in mine["devices"] if device["mig_index"] is None]
    assert [{key: device[mine_key] for key, mine_key in GPUSTAT.items()} for device in devices] == [
        {key: gpu[key] for key in GPUSTAT} for gpu in theirs["gpus"]
    ]
    for device, gpu in zip(devices, theirs["gpus"], strict=True):
        held = {(each["pid"], each["user"], each["memory_mib"]) for each in device["processes"]}
        assert held == {(each["pid"], each["username"], each["gpu_memory_usage"]) for each in gpu["processes"]}


@pytest.mark.parametrize(
    "fault", ["* 1 3", "* 1 4", "* 1 15", "* 1 16", "nvmlInitWithFlags * 18", "nvmlInitWithFlags * 9"]
)
def test_every_named_key_is_there_whatever_the_fault(stand_in: StandIn, tmp_path: Path, fault: str) -> None:
    save_job(tmp_path, "snake-1", [replica(0, 0, None)])
    mine = document(stand_in.host(f"{FOUR_V100}process 0 C 1 5\nfault {fault}\n"), tmp_path)
    for key, fields in NAMED_KEYS.items():
        assert key in mine
        for row in mine[key] if fields else ():
            assert set(fields) <= set(row)
            assert all(set(each) >= PROCESS_KEYS for each in row.get("processes", ()))
            assert all(set(each) >= REPLICA_KEYS for each in row.get("replicas", ()))
    assert [job["id"] for job in mine["jobs"]] == ["snake-1"]


def test_a_mismatch_or_a_driver_that_is_not_loaded_is_told_and_the_jobs_are_shown(
    stand_in: StandIn, tmp_path: Path
) -> None:
    save_job(tmp_path, "snake-1", [replica(0, None, os.getpid())], counts=())
    for code, words in ((18, "reboot or reload the modules"), (9, "not loaded")):
        host = stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * {code}\n")
        shown = told(host, tmp_path)
        assert words in shown
        assert "snake-1" in shown
        assert words in document(host, tmp_path)["problem"]


def test_a_slow_device_costs_its_own_fields_only(stand_in: StandIn, tmp_path: Path) -> None:
    host = stand_in.host(f"{FOUR_V100}fault nvmlDeviceGetUtilizationRates 2 sleep 600\n", driver_patience_s=8)
    devices = document(host, tmp_path)["devices"]
    assert [device["health"] for device in devices] == ["ok", "ok", "error", "ok"]
    assert (devices[2]["memory_total_mib"], devices[2]["utilization_percent"]) == (16160, None)
    assert "NVML did not answer" in told(host, tmp_path)


@pytest.fixture
def shared_host(stand_in: StandIn, tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]) -> Iterator[StandInHost]:
    """A host where two actors of snake-4 hold GPU 1, one of them through its child, beside a foreign process."""
    first, second, foreign = sleepers
    assert second.stdout is not None
    child = int(second.stdout.readline())
    replicas = [replica(0, 1, first.pid), replica(1, 1, second.pid, restarts=2), replica(2, 2, None)]
    save_job(tmp_path, "snake-4", replicas)
    hold = hold_leases(tmp_path, "snake-4", replicas)
    lists = f"process 1 C {first.pid} 1700\nprocess 1 C {child} 812\nprocess 1 G {foreign.pid} 487\n"
    yield stand_in.host(f"{FOUR_V100}{lists}set 1 used 2999\nset 1 reserved 100\n")
    hold.rollback()


def test_processes_are_matched_to_replicas_by_pid_and_by_ancestor(shared_host: StandInHost, tmp_path: Path) -> None:
    mine = document(shared_host, tmp_path)
    matched = {
        each["replica"]: (each["job"], each["memory_mib"], each["share_mib"])
        for each in mine["devices"][1]["processes"]
    }
    assert matched == {
        "actor.0": ("snake-4", 1700, 1583),
        "actor.1": ("snake-4", 812, 1583),
        None: (None, 487, None),
    }
    assert [device["memory_leased_mib"] for device in mine["devices"]] == [0, 2 * 1583, 1583, 0]
    (job,) = mine["jobs"]
    assert [each["used_mib"] for each in job["replicas"]] == [1700, 812, None]
    assert job["progress"]["score"] == 7.25


def test_what_a_saved_status_says_moves_no_cursor(shared_host: StandInHost, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    other = json.loads(told(shared_host, tmp_path, "--json"))
    saved.write_text(json.dumps(other | {"host": "far\x1b[2J\n"}))
    page = told(shared_host, tmp_path, "--machine", str(saved))
    assert page.startswith("far?[2J? (simulated)")
    assert "\x1b" not in page


def test_a_saved_status_is_shown_again_as_it_was(shared_host: StandInHost, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(told(shared_host, tmp_path, "--json"))
    again = document(shared_host, tmp_path / "elsewhere", "--machine", str(saved))
    before = json.loads(saved.read_text())
    for key in ("host", "devices", "leases", "jobs", "cpus"):
        assert again[key] == before[key]
    assert again["source"] == "file"
    assert again["simulated"] is True
    assert "(simulated)" in told(shared_host, tmp_path, "--machine", str(saved))


def test_a_saved_status_may_come_through_a_pipe(shared_host: StandInHost, tmp_path: Path) -> None:
    saved = told(shared_host, tmp_path, "--json")
    line = f"{sys.executable} -m gpusched status --json --machine /dev/stdin"
    piped = subprocess.run(["sh", "-c", line], input=saved, capture_output=True, text=True, check=False)
    assert piped.returncode == 0, piped.stderr
    assert json.loads(piped.stdout)["jobs"] == json.loads(saved)["jobs"]


def test_a_plan_counts_the_memory_of_a_replicas_child_as_its_replicas(shared_host: StandInHost, tmp_path: Path) -> None:
    words = ["-m", "gpusched", "plan", "--procs", "1", "--json"]
    here = shared_host.json(words, env=places(tmp_path))
    assert here["devices"][1]["memory_plannable_mib"] == 16160 - 100 - 323 - 487 - 2 * 1583 - (1700 - 1583)
    assert not any("812" in line for line in here["warnings"])
    saved = tmp_path / "saved.json"
    saved.write_text(told(shared_host, tmp_path, "--json"))
    again = shared_host.json([*words, "--machine", str(saved)])
    assert [again[key] for key in ("counts", "devices")] == [here[key] for key in ("counts", "devices")]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_what_another_user_has_leased_is_shown_with_the_user_and_not_planned(stand_in: StandIn, tmp_path: Path) -> None:
    host = stand_in.host(FOUR_V100)
    with for_all_users() as shared:

        def commit() -> None:
            directory, run_dir = LeaseDirectory(shared), Path(tempfile.mkdtemp(dir=shared))
            with directory.locked():
                directory.commit("snake-7", [share(2000, device=UUID.format(1))], run_dir)

        alice = Fork(NOBODY, commit)
        env = places(tmp_path) | {"GPUSCHED_LEASE_DIR": str(shared)}
        shown = host.json([*STATUS, "--json"], env=env)
        page = told(host, tmp_path, GPUSCHED_LEASE_DIR=str(shared))
        planned = host.json(["-m", "gpusched", "plan", "--procs", "1", "--json"], env=env)
        alice.end()
        after = host.json([*STATUS, "--json"], env=env)
    assert [device["memory_leased_mib"] for device in shown["devices"]] == [0, 2000, 0, 0]
    assert [(lease["user"], lease["job"]) for lease in shown["leases"]] == [("nobody", "snake-7")]
    assert "leased by others 2000" in page
    free = [device["memory_plannable_mib"] for device in planned["devices"]]
    assert free[0] - free[1] == 2000
    assert after["leases"] == []


def test_a_command_line_cannot_move_the_cursor_nor_break_the_json(stand_in: StandIn, tmp_path: Path) -> None:
    odd = [b"import time; time.sleep(300)", b"\x1b[2J\xff\n"]
    with subprocess.Popen([sys.executable, "-c", *odd]) as process:
        host = stand_in.host(f"{FOUR_V100}process 0 C {process.pid} 5\n")
        shown, saved = told(host, tmp_path), tmp_path / "saved.json"
        saved.write_text(told(host, tmp_path, "--json"))
        process.kill()
    assert "?[2J\ufffd" in shown
    assert "\x1b" not in shown
    assert "\ufffd" in document(host, tmp_path, "--machine", str(saved))["devices"][0]["processes"][0]["command"]


def test_the_table_names_owner_share_and_who_is_foreign(shared_host: StandInHost, tmp_path: Path) -> None:
    lines = told(shared_host, tmp_path, COLUMNS="120").splitlines()
    over = next(line for line in lines if "actor.0" in line)
    within = next(line for line in lines if "actor.1" in line)
    foreign = next(line for line in lines if "foreign" in line and " G " in line)
    assert "over: 1700 / 1583 MiB" in over
    assert "812 / 1583 MiB" in within
    assert "over" not in within
    assert "487 MiB" in foreign
    assert any("2 replicas: 2512 used of 3166 leased" in line for line in lines)
    assert any("foreign 487" in line and "reserved 100" in line for line in lines)
    assert any("snake-4" in line and "[1, 2]" in line and "3/3" in line and "score 7.25" in line for line in lines)


@pytest.mark.parametrize(
    ("scenario", "columns"),
    [(FOUR_V100, 80), (EIGHT_A100, 80), (MIXED, 120), (SIXTY_FOUR, 80), (EIGHT_A100, 200)],
    ids=["v100", "a100", "mixed", "64", "wide"],
)
def test_the_page_is_plain_text_in_a_pipe_and_fits(
    stand_in: StandIn, tmp_path: Path, scenario: str, columns: int
) -> None:
    shown = told(stand_in.host(scenario), tmp_path, COLUMNS=str(columns))
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= columns
    assert shown.count("MiB") >= 3


SLOW = "set 1 clocks 0x4\nset 1 power 299000\nset 2 clocks 0x6c\nset 2 temp 93\nset 3 clocks 0x3\n"


def test_what_slows_a_device_stands_below_it_and_nothing_below_others(stand_in: StandIn, tmp_path: Path) -> None:
    host = stand_in.host(FOUR_V100 + SLOW)
    lines = told(host, tmp_path, COLUMNS="80", PYTHONIOENCODING="utf-8").splitlines()
    assert [line for line in lines if "slowed" in line] == [
        "   slowed by: power limit (299 of 300 W)",
        "   slowed by: power limit (36 of 300 W), heat (93°C), hardware slowdown",
        "   slowed by: application clocks",
    ]
    assert lines[lines.index("   slowed by: application clocks") - 2].startswith("3  Tesla V100")
    assert max(map(len, lines)) <= 80
    assert [device["slowed_by"] for device in document(host, tmp_path)["devices"]] == [
        [],
        ["power limit"],
        ["power limit", "heat", "hardware slowdown"],
        ["application clocks"],
    ]


def test_a_saved_status_shows_what_slowed_its_devices(stand_in: StandIn, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(told(stand_in.host(FOUR_V100 + SLOW), tmp_path, "--json"))
    shown = told(stand_in.host("gpus 0\n"), tmp_path, "--machine", str(saved), PYTHONIOENCODING="ascii")
    assert "slowed by: power limit (36 of 300 W), heat (93C), hardware slowdown" in shown
    other = json.loads(saved.read_text())
    other["devices"][0]["slowed_by"] = ["moon\x1b[2J"]
    saved.write_text(json.dumps(other))
    assert "slowed by: moon?[2J" in told(stand_in.host("gpus 0\n"), tmp_path, "--machine", str(saved))


def test_the_table_has_a_column_of_use_where_that_of_any_process_is_known(
    shared_host: StandInHost, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(told(shared_host, tmp_path, "--json"))
    page = json.loads(saved.read_text())
    first, second, *_ = page["devices"][1]["processes"]
    assert " SM " not in told(shared_host, tmp_path, "--machine", str(saved))
    first["sm_percent"], second["sm_percent"] = 37, 0
    saved.write_text(json.dumps(page))
    lines = told(shared_host, tmp_path, "--machine", str(saved)).splitlines()
    head = next(line for line in lines if line.startswith("GPU"))
    ends = head.index(" SM ") + len(" SM")
    shares = [line[:ends].split()[-1] for line in lines[lines.index(head) + 1 :]]
    assert shares == ["37%", "0%", "-"]


def test_on_a_host_with_many_devices_each_reason_is_one_line(stand_in: StandIn, tmp_path: Path) -> None:
    slow = "".join(f"set {gpu} clocks 4\n" for gpu in range(3, 20)) + "set 62 clocks 0x24\nset 63 clocks 0x20\n"
    lines = told(stand_in.host(SIXTY_FOUR + slow), tmp_path, COLUMNS="80").splitlines()
    assert [line for line in lines if "slowed" in line] == [
        "slowed by power limit: GPU 3-19, 62",
        "slowed by heat: GPU 62-63",
    ]


def test_a_mig_instance_is_told_apart_from_its_name(stand_in: StandIn, tmp_path: Path) -> None:
    shown = told(stand_in.host(EIGHT_A100), tmp_path, COLUMNS="120")
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("0:2")] == [["0:2", "NVIDIA"]]


def test_the_page_is_ascii_where_nothing_else_can_be_shown(shared_host: StandInHost, tmp_path: Path) -> None:
    shown = told(shared_host, tmp_path, COLUMNS="100", PYTHONIOENCODING="ascii")
    assert shown.isascii()
    assert "?" not in shown
    assert told(shared_host, tmp_path, "--oneline", PYTHONIOENCODING="ascii").isascii()


def test_one_line_tells_devices_and_jobs(shared_host: StandInHost, tmp_path: Path) -> None:
    line = told(shared_host, tmp_path, "--oneline", PYTHONIOENCODING="utf-8")
    assert line.count("\n") == 1
    assert line.startswith("GPU 0% 0.0/15.8G · 41°C | 37% 2.9/15.8G · 63°C | ")
    assert line.endswith("| snake-4 3/3 running\n")


def test_one_line_sums_many_devices_up(stand_in: StandIn, tmp_path: Path) -> None:
    host = stand_in.host(f"{SIXTY_FOUR}fault nvmlDeviceGetTemperature 5 15\n")
    assert (
        told(host, tmp_path, "--oneline", PYTHONIOENCODING="utf-8") == "64 GPUs 31% 196.9/1010.0G · 93°C · 1 not ok\n"
    )


def test_without_a_device_the_page_shows_cpus_and_jobs(stand_in: StandIn, tmp_path: Path) -> None:
    simulated = [replica(0, 0, os.getpid(), device_uuid="SIM-p3.8xlarge-0")]
    save_job(tmp_path, "snake-1", simulated, simulated=True, machine="p3.8xlarge")
    host = stand_in.host("gpus 0\n")
    shown = told(host, tmp_path)
    assert "no GPU on this host" in shown
    assert " CPU" in shown
    assert "snake-1 on p3.8xlarge (simulated)" in shown
    assert told(host, tmp_path, "--oneline") == "no GPU | snake-1 1/1 running (simulated)\n"
    assert document(host, tmp_path)["source"] == "cpu"


def test_a_simulated_machine_shows_its_simulated_jobs_and_no_lease(stand_in: StandIn, tmp_path: Path) -> None:
    simulated = [replica(0, 0, os.getpid(), device_uuid="SIM-p3.8xlarge-0")]
    save_job(tmp_path, "snake-1", simulated, simulated=True, machine="p3.8xlarge")
    save_job(tmp_path, "other-1", [])
    host = stand_in.host("gpus 0\n")
    shown = told(host, tmp_path, "--machine", "p3.8xlarge")
    assert "snake-1 (simulated) 1 replica: 1583 planned" in shown
    assert "- / 1583 MiB" in shown
    assert "other-1" not in shown
    mine = document(host, tmp_path, "--machine", "p3.8xlarge")
    assert [device["memory_leased_mib"] for device in mine["devices"]] == [0] * 4


def test_a_job_whose_supervisor_is_gone_is_lost_and_an_old_one_is_not_shown(stand_in: StandIn, tmp_path: Path) -> None:
    save_job(tmp_path, "snake-1", [replica(0, 0, 1)], supervisor_start=1)
    ended = {"state": JobState.SUCCEEDED, "counts": ()}
    save_job(tmp_path, "snake-2", [], ended=time.time() - 100, **ended)
    save_job(tmp_path, "snake-3", [], ended=time.time() - 100_000, created=0.0, **ended)
    mine = document(stand_in.host(FOUR_V100), tmp_path)
    assert {job["id"]: job["state"] for job in mine["jobs"]} == {"snake-1": "lost", "snake-2": "succeeded"}
    assert mine["leases"] == []


def test_a_job_that_was_cancelled_while_it_waited_has_run_for_no_time(stand_in: StandIn, tmp_path: Path) -> None:
    save_job(tmp_path, "snake-1", [], state=JobState.CANCELLED, counts=(), ended=time.time() - 10)
    save_job(
        tmp_path, "snake-2", [], state=JobState.CANCELLED, counts=(), started=time.time() - 50.5, ended=time.time()
    )
    rows = {line.split()[0]: line.split() for line in told(stand_in.host(FOUR_V100), tmp_path).splitlines() if line}
    assert rows["snake-1"][1:6] == ["cancelled", "-", "-", "0", "-"]
    assert rows["snake-2"][1:6] == ["cancelled", "-", "-", "0", "50s"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json", "--watch"], "exclude"),
        (["--json", "--oneline"], "exclude"),
        (["--interval", "2"], "--watch"),
        (["--watch", "--interval", "0"], "interval"),
        (["--watch", "--interval", "nan"], "interval"),
        (["--watch"], "terminal"),
        (["--machine", "p3.9xlarge"], "p3.8xlarge"),
        (["--machine", "4x12XiB"], "12XiB"),
        (["--machine", "./missing.json"], "no such file"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_exit_code_2(
    stand_in: StandIn, tmp_path: Path, options: list[str], words: str
) -> None:
    result = stand_in.host(FOUR_V100).run([*STATUS, *options], env=places(tmp_path))
    assert result.returncode == 2
    assert words in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("options", [[], ["--json"], ["--oneline"]])
def test_reading_real_devices_imports_nvml_and_nothing_else_that_is_slow(
    options: list[str], stand_in: StandIn, tmp_path: Path
) -> None:
    code = (
        f"import sys; from gpusched.cli.main import main; main(['status', *{options!r}]); "
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    result = stand_in.host(FOUR_V100).run(["-c", code], env=places(tmp_path))
    imported = set(result.stderr.split())
    assert "pynvml" in imported
    assert not imported & {"typer", "rich", "psutil", "zmq", "numpy", "hashlib", "gpusched.planner"}
    assert ("gpusched.render.status" in imported) is (options == [])
