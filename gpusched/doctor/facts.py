"""What a doctor examines, as values, one section for each thing that can fail by itself to be read."""

from typing import Final, Literal

import msgspec

from gpusched.control.messages import Undelivered
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease

__all__ = [
    "OWN_DISTRIBUTIONS",
    "DaemonFacts",
    "DeviceFacts",
    "Facts",
    "Finding",
    "HostFacts",
    "KeptFacts",
    "Place",
    "PlaceFacts",
    "SoftwareFacts",
    "error",
    "ok",
    "warning",
]

OWN_DISTRIBUTIONS: Final = (
    *("cloudpickle", "msgspec", "numpy", "nvidia-ml-py", "prometheus-client", "psutil", "pyyaml", "pyzmq", "rich"),
    "typer",
)
"""What gpusched needs of others."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result: the check, its state, what was found, and what a person can type or edit ("": nothing)."""

    check: str
    state: Literal["ok", "warning", "error"]
    found: str
    fix: str = ""


def ok(check: str, found: str, fix: str = "") -> Finding:
    """Return that nothing is to be done; `fix` may be how to have it otherwise."""
    return Finding(check=check, state="ok", found=found, fix=fix)


def warning(check: str, found: str, fix: str) -> Finding:
    """Return what may surprise, slow down or fail later."""
    return Finding(check=check, state="warning", found=found, fix=fix)


def error(check: str, found: str, fix: str) -> Finding:
    """Return what keeps jobs from running, or harms them."""
    return Finding(check=check, state="error", found=found, fix=fix)


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The devices, with what is drained marked, and who holds leases on them.

    `module_version` and `library_version` are the driver's two halves, None if unknown. `on_bus` counts the devices of
    NVIDIA on the PCI bus. `variables` are CUDA's own in this shell. `uvm_missing`: /dev has the driver, but not the
    node that CUDA needs beside it. `drained_problem`: why it is not known what is drained. `mps` are the pids of the
    control daemons of CUDA MPS. `now`: when they were read, in Unix seconds.
    """

    inventory: Inventory
    now: float = 0.0
    drained_problem: str | None = None
    leases: tuple[Lease, ...] = ()
    module_version: str | None = None
    library_version: str | None = None
    on_bus: int = 0
    variables: dict[str, str] = {}
    uvm_missing: bool = False
    mps: tuple[int, ...] = ()


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of this process, None where there is none."""

    memory_limit_mib: int | None = None
    threads_limit: int | None = None
    open_files: int | None = None
    open_files_hard: int | None = None
    processes: int | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A directory, or if it is missing (`mode` None) what is known of the nearest one above it."""

    path: str
    mode: int | None = None
    owner: int | None = None
    writable: bool = True
    free_mib: int | None = None
    filesystem: str = ""


class PlaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where gpusched keeps its files, and as whom. `control_problem` is why the control socket cannot be there."""

    user: int
    state: Place
    runtime: Place
    leases: Place
    control_problem: str | None = None


class KeptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs take on the disk. `whole`: all was counted; else it is more.

    `results_mib` lie in the directories of jobs, `kept_results_mib` are those of removed jobs. `undeleted_mib` are what
    is left in `removed` of jobs that are no more. `old_jobs`: those that ended more than 30 days ago. `cut` names some
    of the `cut_logs` logs that were cut, each with how much of it was.
    """

    whole: bool
    jobs: int
    logs_mib: int
    results_mib: int
    kept_results_mib: int = 0
    undeleted_mib: int = 0
    old_jobs: int = 0
    old_mib: int = 0
    cut_logs: int = 0
    cut: tuple[tuple[str, int], ...] = ()
    log_cap_mib: int = 0
    removes_jobs: bool = False
    removes_logs: bool = False
    removed: str = ""


class DaemonFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon, as it answered. `silence` is why it did not, None if it did or if there is none (`pid` None).

    `log` is its log file, `unit` the systemd unit that it runs in. `systemd`: it runs this host. `lingers`: the user's
    service manager does not end with the last login. `undelivered`: notifications that could not be delivered.
    """

    version: str
    log: str
    user_name: str
    is_root: bool
    pid: int | None = None
    silence: str | None = None
    silence_fix: str = ""
    daemon_version: str = ""
    problems: tuple[str, ...] = ()
    undelivered: Undelivered | None = None
    malformed: int = 0
    unit: str | None = None
    systemd: bool = False
    lingers: bool = False


class SoftwareFacts(msgspec.Struct, frozen=True, kw_only=True):
    """This interpreter and what is installed for it: versions by the name of the distribution, installed ones only."""

    python: str
    executable: str
    gpusched: str
    installed: dict[str, str]
    variables: dict[str, str] = {}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All sections; one that could not be read is None, and `failed` has the reason. `hook`: "" if the hook works.

    `settings_problem` is what is wrong with the configuration, as an error's message and hint; sections that need it
    are missing then.
    """

    settings_problem: tuple[str, str] | None = None
    devices: DeviceFacts | None = None
    host: HostFacts | None = None
    places: PlaceFacts | None = None
    kept: KeptFacts | None = None
    daemon: DaemonFacts | None = None
    software: SoftwareFacts | None = None
    hook: str | None = None
    failed: dict[str, str] = {}
