"""What exists: devices, and the snapshot of a host that holds them. A field that a host does not report is None."""

from typing import Final, Literal

import msgspec

__all__ = [
    "HARDWARE_SLOWDOWN",
    "HEAT",
    "POWER_BRAKE",
    "POWER_LIMIT",
    "ComputeMode",
    "Device",
    "DeviceProcess",
    "Health",
    "Inventory",
    "Source",
]

Source = Literal["nvml", "profile", "file", "cpu"]
Health = Literal["ok", "lost", "error"]
ComputeMode = Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]

POWER_LIMIT: Final = "power limit"
HEAT: Final = "heat"
POWER_BRAKE: Final = "power brake"
HARDWARE_SLOWDOWN: Final = "hardware slowdown"


class DeviceProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process that holds memory on a device, as the driver reports it. `kind` is C, G or C+G.

    `peak_mib`: the most that it has held since its start; None unless NVML's accounting is on.

    `sm_percent` is the share of the time since the reading before in which its kernels ran, from 0 to 100, and above 0
    if any did. None: the driver does not report it, there was no reading before, or it is not known whether the process
    did nothing (gpusched/probe/nvml_usage.py). `idle_since`: since when it has done nothing though it holds memory, as
    the daemon knows it of a process of no job, and `began`, when it was started, of such a one; both in Unix seconds.
    """

    pid: int
    user: str | None = None
    command: str | None = None
    memory_mib: int | None = None
    peak_mib: int | None = None
    kind: str = "C"
    sm_percent: int | None = None
    idle_since: float | None = None
    began: float | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU or one MIG instance. Identity is `uuid`; `index` is NVML's, for people.

    A MIG instance carries its parent's `index` and its own `mig_index`; a parent with `mig_mode` on takes no replica.
    `cpus` are the host CPUs near the device, empty when unknown. Memory in MiB, power in W, temperature in °C.
    `performance_state` is NVML's P-state: 0 is the fastest. `slowed_by` is what keeps the clocks down just now, by the
    names above and a few more (docs/reference.md): empty if nothing does, None if the driver does not report it. Low
    clocks of an idle device are no slowdown. `energy_j` is what it has used since the driver was loaded, in J (Volta
    and later); a smaller number than before means that it was counted from 0 again.
    """

    index: int
    uuid: str
    name: str
    mig_index: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: int | None = None
    power_limit_w: int | None = None
    energy_j: int | None = None
    fan_percent: int | None = None
    performance_state: int | None = None
    slowed_by: tuple[str, ...] | None = None
    compute_mode: ComputeMode | None = None
    persistence_mode: bool | None = None
    mig_mode: bool | None = None
    ecc_errors: int | None = None
    bus_id: str | None = None
    cpus: tuple[int, ...] = ()
    health: Health = "ok"
    problem: str | None = None
    processes: tuple[DeviceProcess, ...] = ()

    @property
    def label(self) -> str:
        """What people call it: `0`, or `0:2` for the MIG instance 2 of GPU 0."""
        return str(self.index) if self.mig_index is None else f"{self.index}:{self.mig_index}"


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a host. `cpus` are the CPUs this process may use; `problem` is why NVML could not be read."""

    host: str
    source: Source
    devices: tuple[Device, ...]
    cpus: tuple[int, ...]
    memory_mib: int | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    problem: str | None = None

    @property
    def simulated(self) -> bool:
        """Whether the devices are described rather than present: a machine profile or a saved snapshot."""
        return self.source in ("profile", "file")
