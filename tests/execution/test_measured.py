"""What a submission is planned with of what was measured: on devices that it may use, and no more than they have."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpusched.control import place
from gpusched.control.client import Client
from gpusched.control.usage_messages import FindMeasured
from gpusched.errors import GpuschedError, NoDaemon, ProtocolError, UsageError
from gpusched.execution.footprint_key import footprint_keys
from gpusched.execution.measured import measured_here, with_measured
from gpusched.execution.plans import plan_for
from gpusched.execution.submission import command_submission
from gpusched.model.device import Device, Inventory
from gpusched.model.footprint import Context, Footprint, Measurements
from gpusched.model.job import Submission
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.workload import Memory, Role, Workload
from gpusched.settings import Settings

SMALL, LARGE = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB"
SMALLEST_MIB, LARGEST_MIB = 16_000, 80_000


def device(index: int, name: str = SMALL, **changes: Any) -> Device:
    mib = SMALLEST_MIB if name == SMALL else LARGEST_MIB
    made = Device(index=index, uuid=f"GPU-{index}", name=name, memory_total_mib=mib, memory_reserved_mib=0)
    return replace(made, **changes)


def host(*devices: Device) -> Inventory:
    return Inventory(host="here", source="nvml", devices=devices, cpus=tuple(range(8)), driver_version="1.2")


def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, runtime_dir=tmp_path, lease_dir=tmp_path)


def asked(memory: str = "auto", **given: str) -> Submission:
    return command_submission(["python", "train.py"], {"memory": memory, **given}, {})


def rows(*peaks: int, lacked: int | None = None) -> tuple[Footprint, ...]:
    """Return runs with these peaks, the latest first; the latest of all ran out of memory at `lacked`."""
    known = [
        Footprint(job=f"run-{number}", ended=100.0 - number, peak_mib=peak, framework="torch", version="2.11")
        for number, peak in enumerate(peaks)
    ]
    if lacked is not None:
        known.insert(0, Footprint(job="run-x", ended=200.0, lacked_mib=lacked, framework="torch", version="2.11"))
    return tuple(known)


class Known:
    """What a daemon knows, and of which models it was asked."""

    def __init__(self, **of: tuple[Footprint, ...]) -> None:
        self.rows = {{"small": SMALL, "large": LARGE}[name]: some for name, some in of.items()}
        self.contexts: dict[str, tuple[Context, ...]] = {}
        self.models: list[str] = []

    def __call__(self, keys: Any, devices: Any, _: str | None) -> Measurements:
        self.models = list(devices)
        rows = {model: some for model, some in self.rows.items() if model in devices}
        contexts = {model: some for model, some in self.contexts.items() if model in devices}
        return Measurements(footprints=dict.fromkeys(keys, rows), contexts=contexts)


def planned_mib(submission: Submission, inventory: Inventory, tmp_path: Path, known: Known) -> int:
    """Return the limit that the plan gives the command: it fits."""
    found = with_measured(submission, inventory, settings(tmp_path), known)
    return plan_for(found, inventory, (), settings(tmp_path)).replicas[0].limit_mib


@pytest.mark.parametrize("lacked", [14_000, 15_230])
def test_after_a_lack_auto_asks_for_no_more_than_a_device_can_give(tmp_path: Path, lacked: int) -> None:
    known = Known(small=rows(9000, 9000, 9000, lacked=lacked))
    most = SMALLEST_MIB - SMALLEST_MIB * 2 // 100 - 450
    assert planned_mib(asked(), host(device(0)), tmp_path, known) == most


def test_what_is_added_to_the_largest_peak_asks_for_no_more_than_a_device_can_give(tmp_path: Path) -> None:
    known = Known(small=rows(15_000, 15_000, 15_000))
    assert planned_mib(asked(), host(device(0)), tmp_path, known) == SMALLEST_MIB - SMALLEST_MIB * 2 // 100 - 450


def test_each_process_of_a_command_has_its_context_beside_what_auto_asks_for(tmp_path: Path) -> None:
    known = Known(small=rows(9000, 9000, 9000, lacked=14_900))
    found = planned_mib(asked(processes="2"), host(device(0)), tmp_path, known)
    assert found == SMALLEST_MIB - SMALLEST_MIB * 2 // 100 - 2 * 450


@pytest.mark.parametrize(
    ("given", "devices", "models"),
    [
        ({}, (device(0), device(1, LARGE)), [LARGE, SMALL]),
        ({"gpus": "0"}, (device(0), device(1, LARGE)), [SMALL]),
        ({"exclude_gpus": "0"}, (device(0), device(1, LARGE)), [LARGE]),
        ({}, (device(0), device(1, LARGE, health="error", problem="drained")), [SMALL]),
        ({}, (device(0), device(1, LARGE, compute_mode="prohibited")), [SMALL]),
        (
            {},
            (device(0, LARGE, mig_mode=True), device(0, SMALL, uuid="MIG-0", mig_index=0)),
            [SMALL],
        ),
    ],
    ids=["all", "named", "excluded", "drained", "prohibited", "a parent of MIG instances"],
)
def test_only_models_of_devices_that_may_be_used_count(
    tmp_path: Path, given: dict[str, str], devices: tuple[Device, ...], models: list[str]
) -> None:
    known = Known(small=rows(1000, 1000, 1000), large=rows(2000, 2000, 2000))
    found = with_measured(asked(**given), host(*devices), settings(tmp_path), known)
    assert known.models == models
    assert found.command is not None
    assert found.command.memory_mib == (2112 if LARGE in models else 1088)


def test_a_visible_device_hides_the_models_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0")
    known = Known(small=rows(1000, 1000, 1000), large=rows(2000, 2000, 2000))
    with_measured(asked(), host(device(0), device(1, LARGE)), settings(tmp_path), known)
    assert known.models == [SMALL]


def test_a_name_of_no_device_is_refused_as_without_auto(tmp_path: Path) -> None:
    known = Known(small=rows(1000, 1000, 1000))
    wrong = asked(gpus="7")
    found = with_measured(wrong, host(device(0)), settings(tmp_path), known)
    with pytest.raises(UsageError, match="there is no device '7'"):
        plan_for(found, host(device(0)), (), settings(tmp_path))
    assert footprint_keys(wrong)


def test_a_lack_before_a_framework_was_seen_leaves_its_context(tmp_path: Path) -> None:
    lack = Footprint(job="run-x", ended=200.0, lacked_mib=1000)
    known = Known(small=(lack, *rows(1000, 1000, 1000)))
    contexts = [
        Context(driver="1.2", framework="torch", version="2.11", mib=300, ended=float(number)) for number in range(3)
    ]
    known.contexts = {SMALL: tuple(contexts)}
    found = with_measured(asked(), host(device(0)), settings(tmp_path), known)
    assert found.command is not None
    assert (found.command.context_mib, found.command.memory_mib) == (300, 1256)


@pytest.mark.parametrize(("lacked", "mib"), [(300, 556), (100, 400), (15_300, 15_230), (None, 400)])
def test_while_too_few_runs_are_known_auto_asks_for_more_after_a_lack(
    tmp_path: Path, lacked: int | None, mib: int
) -> None:
    known = Known(small=rows(50, lacked=lacked))
    assert planned_mib(asked("auto:400MiB"), host(device(0)), tmp_path, known) == mib


def test_the_plan_has_the_lack_for_which_it_asks_for_more(tmp_path: Path) -> None:
    memory = Memory(min_mib=400, first_mib=400)
    request = Request(workload="lab", roles=(RoleRequest(name="actor", count=1, memory=memory),))
    workload = Workload(name="lab", roles=(Role(name="actor", command=("a",), memory=memory),))
    lab = replace(asked(), command=None, workload=workload, request=request, grow=False)
    found = with_measured(lab, host(device(0)), settings(tmp_path), Known(small=rows(50, lacked=300)))
    plan = plan_for(found, host(device(0)), (), settings(tmp_path))
    line = "actor: auto needs 3 runs, and there is 1: 556 MiB until then, and one ran out of memory at 300"
    assert line in plan.why
    assert plan.replicas[0].limit_mib == 556


class Asked:
    """A daemon's socket that is there, and the questions that a client asked at it, each with its patience."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.patience: list[float | None] = []
        monkeypatch.setattr(place, "listener", lambda _: 1)

        def ask(_: Client, question: FindMeasured, patience_s: float | None = None) -> None:
            assert question.devices == (SMALL,)
            self.patience.append(patience_s)
            raise error

        monkeypatch.setattr(Client, "ask", ask)


@pytest.mark.parametrize("error", [NoDaemon("it hangs", "-"), ProtocolError("a key is too long", "-")])
def test_a_plan_does_without_what_a_daemon_does_not_answer_and_waits_longer_for_what_is_auto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: GpuschedError
) -> None:
    daemon, plain = Asked(monkeypatch, error), asked("1GiB")
    assert measured_here(plain, host(device(0)), settings(tmp_path)) == plain
    with pytest.raises(type(error), match=error.message):
        measured_here(asked(), host(device(0)), settings(tmp_path))
    assert daemon.patience == [0.5, None], "None: as long as any question waits"


def test_a_job_that_runs_functions_is_planned_with_the_context_alone(tmp_path: Path) -> None:
    known = Known(small=rows(1000, 1000, 1000))
    known.contexts = {
        SMALL: tuple(Context(driver="1.2", framework="torch", version="2", mib=500, ended=1.0 + n) for n in range(3))
    }
    calls = command_submission(["python", "-m", "gpusched.calls"], {"memory": "1GiB"}, {})
    found = with_measured(calls, host(device(0)), settings(tmp_path), known)
    assert found.command is not None
    assert (found.command.context_mib, found.command.memory_mib) == (500, 1024)
