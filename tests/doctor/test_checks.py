"""Every finding that there is: from facts to state, words and fix. None of these needs a host."""

import re
import stat
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from gpusched.control.messages import Undelivered
from gpusched.doctor import check_devices as of_devices
from gpusched.doctor import check_gpusched as of_gpusched
from gpusched.doctor import check_host as of_host
from gpusched.doctor import check_software as of_software
from gpusched.doctor.examine import examine
from gpusched.doctor.facts import (
    OWN_DISTRIBUTIONS,
    DaemonFacts,
    DeviceFacts,
    Facts,
    Finding,
    HostFacts,
    KeptFacts,
    Place,
    PlaceFacts,
    SoftwareFacts,
)
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from tests.test_layering import ROOT

Check = Callable[..., Finding | Iterable[Finding]]


def gpu(index: int = 0, **fields: Any) -> Device:
    known: dict[str, Any] = {"name": "Tesla V100-SXM2-16GB", "compute_mode": "default", "persistence_mode": True}
    return Device(**{"index": index, "uuid": f"GPU-{index}", "ecc_errors": 0, **known, **fields})


def devices(*gpus: Device, inventory: dict[str, Any] | None = None, **fields: Any) -> DeviceFacts:
    about: dict[str, Any] = {
        "host": "h",
        "source": "nvml",
        "devices": gpus,
        "cpus": (0,),
        "driver_version": "535.129.03",
    }
    return DeviceFacts(inventory=Inventory(**about | (inventory or {})), **fields)


def place(path: str = "/home/anna/state", **fields: Any) -> Place:
    known: dict[str, Any] = {"mode": stat.S_IFDIR | 0o700, "owner": 1000, "free_mib": 50_000, "filesystem": "ext4"}
    return Place(path=path, **known | fields)


def kept(**fields: Any) -> KeptFacts:
    known: dict[str, Any] = {"whole": True, "jobs": 3, "logs_mib": 12_000, "results_mib": 7, "log_cap_mib": 256}
    return KeptFacts(**known | fields)


def places(**changed: Place | str) -> PlaceFacts:
    known: dict[str, Any] = {
        "state": place(),
        "runtime": place("/run/user/1000/gpusched"),
        "leases": place("/run/gpusched", mode=stat.S_IFDIR | 0o1777, owner=0),
    }
    return PlaceFacts(user=1000, **known | changed)


def daemon(**fields: Any) -> DaemonFacts:
    known: dict[str, Any] = {"version": "1.0", "log": "/s/daemon.log", "user_name": "anna", "is_root": False, "pid": 7}
    return DaemonFacts(**known | {"daemon_version": "1.0"} | fields)


def software(installed: dict[str, str] | None = None, **fields: Any) -> SoftwareFacts:
    own = dict.fromkeys(OWN_DISTRIBUTIONS, "1")
    known: dict[str, Any] = {"python": "3.11", "executable": "/p", "gpusched": "1.0"}
    return SoftwareFacts(installed=own | (installed or {}), **known | fields)


def host(**fields: Any) -> HostFacts:
    return HostFacts(**{"open_files": 65536} | fields)


MISMATCH = "driver and library do not match: the NVIDIA driver was upgraded while in use"
OTHER_USERS_PROCESS = DeviceProcess(pid=4711, user="bob", command="train", memory_mib=9216)
LEASE = Lease(device_uuid="GPU-0", share_mib=9216, job="snake-1", replica="actor.0", pid=4711)
TROUBLE: list[tuple[Check, Any, str, str, str]] = [
    (of_devices.check_driver, devices(inventory={"problem": MISMATCH}), "error", "do not match", "reboot"),
    (
        of_devices.check_driver,
        devices(gpu(), module_version="535.1.2", library_version="550.1.2"),
        "error",
        "module 535.1.2, library 550.1.2",
        "reboot",
    ),
    (
        of_devices.check_driver,
        devices(inventory={"source": "cpu", "problem": "the NVIDIA driver is not loaded"}, on_bus=1),
        "error",
        "not loaded",
        "modprobe nvidia",
    ),
    (
        of_devices.check_driver,
        devices(inventory={"source": "cpu", "problem": "the NVIDIA driver is not loaded"}),
        "warning",
        "not loaded",
        "modprobe nvidia",
    ),
    (of_devices.check_driver, devices(inventory={"source": "cpu"}, on_bus=2), "error", "2 NVIDIA devices", "install"),
    (of_devices.check_driver, devices(inventory={"problem": "no permission to use"}), "error", "no perm", "usermod"),
    (of_devices.check_driver, devices(inventory={"problem": "NVML did not answer"}), "error", "NVML", "dmesg"),
    (of_devices.check_driver, devices(inventory={"problem": "error 999"}), "error", "error 999", "nvidia-smi"),
    (of_devices.check_cuda_node, devices(gpu(), uvm_missing=True), "warning", "/dev/nvidia-uvm", "nvidia-modprobe"),
    (
        of_devices.check_health,
        devices(gpu(1, health="error", problem="drained since 09:12: Xid 79, the GPU has fallen off the bus")),
        "error",
        "GPU 1: drained since 09:12: Xid 79",
        "gpusched daemon undrain 1",
    ),
    (of_devices.check_health, devices(gpu(health="lost", problem="fallen off")), "error", "GPU 0: fallen", "reboot"),
    (of_devices.check_health, devices(gpu(health="error", problem="NVML did not answer")), "error", "NVML", "dmesg"),
    (of_devices.check_health, devices(gpu(), drained_problem="/s/drained.json: bad"), "error", "drained.json", "move"),
    (of_devices.check_ecc, devices(gpu(), gpu(1, ecc_errors=2)), "error", "GPU 1: 2 uncorrected errors", "-i 1"),
    (of_devices.check_compute_mode, devices(gpu(compute_mode="prohibited")), "error", "prohibited", "-i 0 -c DEFAULT"),
    (of_devices.check_compute_mode, devices(gpu(compute_mode="exclusive_process")), "warning", "one replica", "-c DEF"),
    (of_devices.check_persistence, devices(gpu(persistence_mode=False)), "warning", "GPU 0: off", "persistenced"),
    (
        of_devices.check_slowdown,
        devices(gpu(slowed_by=("power limit",)), gpu(3, slowed_by=("power limit", "heat"))),
        "warning",
        "slowed just now: GPU 3 by power limit, heat",
        "-i 3",
    ),
    (of_devices.check_slowdown, devices(gpu(slowed_by=("power brake",))), "warning", "GPU 0 by power brake", "-i 0"),
    (of_devices.check_mig, devices(gpu(2, mig_mode=True)), "warning", "GPU 2: on, without", "mig -i 2 -cgi"),
    (
        of_devices.check_visible_devices,
        devices(gpu(), gpu(1), variables={"CUDA_VISIBLE_DEVICES": "0"}),
        "warning",
        "='0': only GPU 0 may be used",
        "unset",
    ),
    (of_devices.check_mps, devices(mps=(12,)), "warning", "process 12", "nvidia-cuda-mps-control"),
    (
        of_devices.check_foreign,
        devices(gpu(2, processes=(OTHER_USERS_PROCESS,))),
        "warning",
        "process 4711 of bob holds 9216 MiB of GPU 2",
        "gpusched status",
    ),
    (of_host.check_memory, host(memory_limit_mib=4096), "warning", "4096 MiB", "docker run --memory"),
    (of_host.check_processes, host(threads_limit=100), "warning", "at most 100", "--pids-limit"),
    (of_host.check_processes, host(processes=1000, threads_limit=9000), "warning", "at most 1000", "ulimit -u"),
    (of_host.check_open_files, host(open_files=512, open_files_hard=None), "warning", "at most 512", "ulimit -n 1024"),
    (of_host.check_open_files, host(open_files=64, open_files_hard=128), "error", "at most 64", "ulimit -n 128"),
    (of_gpusched.check_state, places(state=place(owner=1001)), "error", "belongs to user 1001", "GPUSCHED_STATE_DIR"),
    (of_gpusched.check_state, places(state=place(mode=stat.S_IFREG)), "error", "is no directory", "mv"),
    (of_gpusched.check_state, places(state=place(mode=stat.S_IFDIR | 0o777)), "error", "other users may", "chmod go-w"),
    (of_gpusched.check_state, places(state=place(writable=False)), "error", "cannot be written", "GPUSCHED_STATE_DIR"),
    (
        of_gpusched.check_state,
        places(state=place(mode=None, owner=None, writable=False)),
        "error",
        "cannot be made",
        "GPUSCHED_STATE_DIR",
    ),
    (of_gpusched.check_state, places(state=place(free_mib=500)), "warning", "500 MiB free", "du -sh"),
    (of_gpusched.check_state, places(state=place(free_mib=0)), "error", "0 MiB free", "du -sh"),
    (of_gpusched.check_state, places(state=place(filesystem="nfs4")), "warning", "is on nfs4", "GPUSCHED_STATE_DIR="),
    (of_gpusched.check_runtime, places(control_problem="too long"), "error", "too long", "GPUSCHED_RUNTIME_DIR"),
    (
        of_gpusched.check_runtime,
        places(runtime=place("/r", mode=stat.S_IFDIR | 0o755)),
        "error",
        "open to other users",
        "chmod 700 /r",
    ),
    (of_gpusched.check_leases, places(leases=place(mode=stat.S_IFDIR | 0o777)), "error", "each other's", "chmod 1777"),
    (of_gpusched.check_leases, places(leases=place(writable=False)), "error", "cannot be written", "chmod 1777"),
    (of_gpusched.check_leases, places(leases=place(owner=1001)), "error", "user 1001", "chown"),
    (of_gpusched.check_daemon, daemon(silence="it hangs", silence_fix="kill it"), "error", "it hangs", "kill it"),
    (of_gpusched.check_daemon, daemon(daemon_version="0.9"), "warning", "0.9, and this is 1.0", "daemon stop"),
    (of_gpusched.check_daemon, daemon(problems=("the disk is full",)), "warning", "disk is full", "/s/daemon.log"),
    (
        of_gpusched.check_notifications,
        daemon(undelivered=Undelivered(waiting=2, given_up=1, since=0.0, reason="lab1 answered 500")),
        "warning",
        "2 could not be delivered yet, 1 were given up",
        "gpusched notify test",
    ),
    (of_gpusched.check_linger, daemon(systemd=True), "warning", "last login", "enable-linger anna"),
    (of_software.check_nvml_binding, software({"pynvml": "11.5.0"}), "error", "takes the place", "pip uninstall"),
    (of_software.check_nvml_binding, software({"pynvml": "12.0.0"}), "warning", "deprecated", "pip uninstall"),
    (of_software.check_tensorflow, (software({"tensorflow-cpu": "2.20"}), devices(gpu())), "warning", "no GPU", "cuda"),
    (of_software.check_tensorflow, (software({"tensorflow": "2.20"}), devices(gpu())), "warning", "libr", "and-cuda"),
    (of_software.check_torch, (software({"torch": "2.7.0+cpu"}), devices(gpu())), "warning", "no GPU", "cu126"),
    (of_software.check_torch, (software({"torch": "2.9.1"}), devices(gpu())), "warning", "V100", "cu126"),
    (of_software.check_jax, (software({"jax": "0.5.0"}), devices(gpu())), "warning", "no CUDA plugin", "jax[cuda12]"),
    (
        of_software.check_jax,
        (
            software(
                {"jax": "0.5.0"},
                variables={"XLA_CLIENT_MEM_FRACTION": "1", "XLA_PYTHON_CLIENT_MEM_FRACTION": "1"},
            ),
            devices(),
        ),
        "warning",
        "both set",
        "unset",
    ),
    (of_software.check_hook, "ImportError: x", "error", "ImportError: x", "sitecustomize"),
]
FINE: list[tuple[Check, Any, str]] = [
    (of_gpusched.check_room, kept(), "3 jobs: logs 11.7 GiB, results 7 MiB"),
    (of_gpusched.check_room, kept(whole=False, kept_results_mib=9), "at least 3 jobs: "),
    (of_gpusched.check_room, kept(old_jobs=2, old_mib=40), "; 2 ended over 30 days ago, with 40 MiB"),
    (of_gpusched.check_room, kept(undeleted_mib=8, removed="/s/removed"), "8 MiB of removed jobs are not deleted yet"),
    (of_gpusched.check_logs, kept(), "no log was cut; each may hold 256 MiB"),
    (of_gpusched.check_logs, kept(log_cap_mib=0, removes_logs=True), "any amount, and keep_logs has old ones removed"),
    (
        of_gpusched.check_logs,
        kept(cut_logs=3, cut=(("run-1/command.0", 512),)),
        "3 logs cut in the middle: run-1/command.0 (512 MiB) and 2 more; each may hold 256 MiB",
    ),
    (of_devices.check_driver, devices(gpu(), inventory={"cuda_version": "12.2"}), "535.129.03, CUDA 12.2, 1 device"),
    (of_devices.check_driver, devices(inventory={"source": "cpu"}), "no NVIDIA device"),
    (of_devices.check_health, devices(gpu()), "no device is lost"),
    (of_devices.check_ecc, devices(gpu(ecc_errors=None)), "no device counts"),
    (of_devices.check_compute_mode, devices(gpu(), gpu(1, compute_mode=None)), "may share"),
    (of_devices.check_persistence, devices(gpu(persistence_mode=None)), "no device is set up"),
    (of_devices.check_slowdown, devices(gpu()), "no device reports what slows it"),
    (of_devices.check_slowdown, devices(gpu(slowed_by=()), gpu(1)), "no device is slowed by heat or for want of power"),
    (of_devices.check_slowdown, devices(gpu(slowed_by=("power limit",))), "want of power; GPU 0 by power limit"),
    (of_devices.check_mig, devices(gpu(mig_mode=True), gpu(mig_index=0, uuid="MIG-0")), "1 instance"),
    (of_devices.check_visible_devices, devices(), "not set"),
    (of_devices.check_mps, devices(), "does not run"),
    (of_devices.check_foreign, devices(gpu(processes=(OTHER_USERS_PROCESS,)), leases=(LEASE,)), "no process"),
    (of_host.check_memory, host(), "no limit"),
    (of_host.check_memory, host(memory_limit_mib=64_000), "62.5 GiB"),
    (of_host.check_processes, host(), "no limit"),
    (of_host.check_processes, host(processes=60_000), "60000"),
    (of_host.check_open_files, host(open_files=None), "no limit"),
    (of_gpusched.check_state, places(), "48.8 GiB free"),
    (of_gpusched.check_state, places(state=place(mode=None, owner=None)), "made by the first job"),
    (of_gpusched.check_runtime, places(), "/run/user/1000/gpusched"),
    (of_gpusched.check_leases, places(), "the jobs of all users"),
    (of_gpusched.check_leases, places(leases=place("/run/user/1000/gpusched/leases")), "only this user's jobs"),
    (of_gpusched.check_daemon, daemon(pid=None), "does not run"),
    (of_gpusched.check_daemon, daemon(unit="gpusched.service"), "in gpusched.service"),
    (of_gpusched.check_daemon, daemon(malformed=3), "dropped 3 messages"),
    (of_gpusched.check_notifications, daemon(), "none waits"),
    (of_gpusched.check_notifications, daemon(pid=None, daemon_version=""), "no daemon answers"),
    (of_gpusched.check_linger, daemon(systemd=True, lingers=True), "outlive"),
    (of_gpusched.check_linger, daemon(), "do not depend"),
    (of_software.check_python, software(), "gpusched 1.0 on Python 3.11"),
    (of_software.check_nvml_binding, software(), "NVIDIA's own"),
    (of_software.check_tensorflow, (software(), devices()), "not installed"),
    (of_software.check_tensorflow, (software({"tensorflow-cpu": "2.20"}), devices()), "tensorflow-cpu 2.20"),
    (of_software.check_torch, (software({"torch": "2.9.1+cu126"}), devices(gpu())), "2.9.1+cu126"),
    (of_software.check_jax, (software({"jax": "0.5", "jax-cuda12-plugin": "0.5"}), devices(gpu())), "jax 0.5"),
    (of_software.check_hook, "", "has it"),
]


def told(check: Check, facts: Any) -> list[Finding]:
    found = check(*facts) if isinstance(facts, tuple) else check(facts)
    return [found] if isinstance(found, Finding) else list(found)


def name(value: Any) -> str:
    return value.__name__ if callable(value) else value if isinstance(value, str) else "-"


@pytest.mark.parametrize(("check", "facts", "state", "words", "fix"), TROUBLE, ids=name)
def test_trouble_is_found_in_words_and_with_a_fix(check: Check, facts: Any, state: str, words: str, fix: str) -> None:
    finding = next(each for each in told(check, facts) if each.state != "ok")
    assert finding.state == state
    assert words in finding.found
    assert fix in finding.fix


@pytest.mark.parametrize(("check", "facts", "words"), FINE, ids=name)
def test_where_nothing_is_wrong_it_says_what_it_saw(check: Check, facts: Any, words: str) -> None:
    findings = told(check, facts)
    assert [each.state for each in findings] == ["ok"] * len(findings)
    assert words in findings[0].found


def test_every_check_has_its_trouble_tested() -> None:
    modules = (of_devices, of_host, of_gpusched, of_software)
    all_checks = {getattr(module, each) for module in modules for each in module.__all__}
    without_trouble = {of_software.check_python, of_gpusched.check_room, of_gpusched.check_logs}
    assert all_checks == {check for check, *_ in TROUBLE} | without_trouble


def test_many_foreign_processes_are_summed_up_the_largest_first() -> None:
    many = tuple(DeviceProcess(pid=pid, memory_mib=pid) for pid in range(1, 9))
    (finding,) = told(of_devices.check_foreign, devices(gpu(processes=many)))
    assert finding.found.startswith("process 8 of somebody holds 8 MiB")
    assert finding.found.endswith("and 4 more")


WHOLE = Facts(devices=devices(gpu()), host=host(), places=places(), daemon=daemon(), software=software(), hook="")


def test_all_that_gpusched_requires_is_asked_after() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(OWN_DISTRIBUTIONS) == sorted(re.match(r"[a-z-]+", one)[0] for one in required)  # type: ignore[index]


def test_all_checks_are_made_once() -> None:
    checks = [finding.check for finding in examine(WHOLE)]
    assert len(checks) == len(set(checks)) >= 20
    assert {finding.state for finding in examine(WHOLE)} == {"ok"}


def test_a_host_without_devices_is_spared_their_checks() -> None:
    checks = {finding.check for finding in examine(msgspec.structs.replace(WHOLE, devices=devices()))}
    assert "compute-mode" not in checks
    assert "driver" in checks


def test_what_could_not_be_looked_at_is_a_finding_and_the_rest_is_looked_at() -> None:
    facts = msgspec.structs.replace(WHOLE, devices=None, failed={"devices": "no answer within 1.7 s"})
    first, *rest = examine(facts)
    assert (first.check, first.state) == ("devices", "warning")
    assert "no answer within 1.7 s" in first.found
    assert "open-files" in {finding.check for finding in rest}


def test_a_configuration_that_is_wrong_is_an_error() -> None:
    first, *_ = examine(Facts(settings_problem=("config.toml: bad", "mend it"), host=host()))
    assert (first.check, first.state, first.fix) == ("settings", "error", "mend it")


def test_a_check_that_fails_is_a_finding_and_the_end_of_no_other() -> None:
    odd = msgspec.structs.replace(WHOLE, host=host(open_files="many"))
    findings = {finding.check: finding for finding in examine(odd)}
    assert findings["open-files"].state == "warning"
    assert "the check failed: TypeError" in findings["open-files"].found
    assert findings["processes"].state == "ok"


def test_a_foreign_process_that_does_nothing_is_named_with_how_long() -> None:
    idle = DeviceProcess(pid=4711, user="bob", memory_mib=9318, idle_since=1000.0)
    (finding,) = told(of_devices.check_foreign, devices(gpu(processes=(idle,)), now=1000.0 + 3 * 3600 + 720))
    assert finding.found == "process 4711 of bob holds 9318 MiB of GPU 0 and has done nothing for 3h12m"
