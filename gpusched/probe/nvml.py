"""Reads the devices of this host with NVML. It knows pynvml, as nvml_events does, and imports it when it is to read.

NVML may lack a call, refuse a field, lose a device, or never answer; none of that leaves this module as an error: a
field that cannot be read is None, a device that cannot be read keeps its row, and no read waits longer than a deadline.
It must not know about jobs, leases or plans.

Facts: NVML API reference (nvml.h), error codes and constants by number so that reading them needs no library.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from gpusched.model.device import ComputeMode, Device, DeviceProcess, Health, Inventory, Source
from gpusched.probe.host import host_name, memory_mib, process_owner, usable_cpus
from gpusched.probe.reading import Reading

__all__ = ["NvmlProbe", "library_is_there"]

_LIBRARY: Final = "libnvidia-ml.so.1"  # as pynvml searches it
_NO_PERMISSION: Final = 4
_DRIVER_NOT_LOADED: Final = 9
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16
_OPERATING_SYSTEM: Final = 17
_LIB_RM_VERSION_MISMATCH: Final = 18

_START_PROBLEMS: Final[dict[int, tuple[Source, str]]] = {
    _DRIVER_NOT_LOADED: ("cpu", "the NVIDIA driver is not loaded: load it (modprobe nvidia), or install it again"),
    _LIB_RM_VERSION_MISMATCH: (
        "nvml",
        "driver and library do not match: the NVIDIA driver was upgraded while in use; reboot or reload the modules",
    ),
    _NO_PERMISSION: ("nvml", "no permission to use the NVIDIA driver: check who may open /dev/nvidiactl"),
    _OPERATING_SYSTEM: ("nvml", "the operating system keeps this process from the NVIDIA driver: check its cgroup"),
}
_DEVICE_PROBLEMS: Final[dict[int, tuple[Health, str]]] = {
    _NO_PERMISSION: ("error", "no permission to read it"),
    _GPU_IS_LOST: ("lost", "it has fallen off the bus; reboot the host"),
    _RESET_REQUIRED: ("error", "it needs a reset (nvidia-smi --gpu-reset)"),
    _OPERATING_SYSTEM: ("error", "the operating system keeps this process from it"),
}
_SEVERE: Final = (_GPU_IS_LOST, _RESET_REQUIRED)
_COMPUTE_MODES: Final[dict[int, ComputeMode]] = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
_UNKNOWN_PERFORMANCE: Final = 32
_OF_THE_BOARD: Final = ("index", "bus_id", "cpus")
_IDENTITY: Final = ("uuid", "name", "bus_id", "cpus", "memory_total_mib")

# field, call, its arguments after the handle, what to make of the answer; the most wanted first, because what was read
# before a call that never returns is all there is. ECC: uncorrected (1), volatile (0), as nvidia-smi shows.
_FIELDS: Final[tuple[tuple[str, str, tuple[int, ...], Callable[[Any], object]], ...]] = (
    ("compute_mode", "nvmlDeviceGetComputeMode", (), _COMPUTE_MODES.get),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", (), bool),
    ("utilization_percent", "nvmlDeviceGetUtilizationRates", (), lambda rates: int(rates.gpu)),
    ("temperature_c", "nvmlDeviceGetTemperature", (0,), int),
    ("power_w", "nvmlDeviceGetPowerUsage", (), lambda milliwatts: milliwatts // 1000),
    ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", (), lambda milliwatts: milliwatts // 1000),
    ("fan_percent", "nvmlDeviceGetFanSpeed", (), int),
    (
        "performance_state",
        "nvmlDeviceGetPerformanceState",
        (),
        lambda state: None if state == _UNKNOWN_PERFORMANCE else state,
    ),
    ("ecc_errors", "nvmlDeviceGetTotalEccErrors", (1, 0), int),
)


def library_is_there() -> bool:
    """Return whether NVIDIA's library can be loaded. It is loaded then, and stays so."""
    import ctypes

    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


class NvmlProbe:
    """NVML of this host, to be read once or again and again. Nothing here raises, and a read is bounded in time.

    `deadline_s` bounds both the start of NVML and the reading of all devices, which goes on at once for all of them.
    A device that does not answer has health "error", keeps its last reading, and is not asked again until the stuck
    call returns, nor waited for.
    """

    def __init__(self, deadline_s: float = 2.0) -> None:
        self._deadline_s = deadline_s
        self._nvml: Any = None
        self._start: Reading[_Driver] | None = None
        self._silent = False
        self._readers: dict[int, _DeviceReader] = {}

    def read(self) -> Inventory:
        """Return a snapshot of this host: source "nvml", or "cpu" if it has no device, no driver or no library."""
        start = self._begun()
        self._silent = not start.wait(0 if self._silent else self._deadline_s)
        if self._silent:
            return self._inventory((), _Driver(source="nvml", problem=self._silence()))
        driver, self._start = start.result(), None
        devices = tuple(self._devices(driver.count))
        if devices and all(device.problem == _DEVICE_PROBLEMS[_NO_PERMISSION][1] for device in devices):
            source, problem = _START_PROBLEMS[_NO_PERMISSION]
            driver = msgspec.structs.replace(driver, source=source, problem=problem)
        return self._inventory(devices, driver)

    def close(self) -> None:
        """Shut NVML down, unless a call is stuck in it: shutting down would wait for that call."""
        if self._nvml is not None and self._start is None and not any(r.stuck for r in self._readers.values()):
            Reading(self._nvml.nvmlShutdown, "nvml-stop").wait(self._deadline_s)
            self._nvml = None

    def _begun(self) -> "Reading[_Driver]":
        if self._start is None:
            self._start = Reading(self._begin, "nvml-start")
        return self._start

    def _begin(self) -> "_Driver":
        if not library_is_there():
            return _Driver(source="cpu")  # the common case without a GPU, found without the long import of pynvml
        import pynvml

        try:
            if self._nvml is None:
                pynvml.nvmlInit()
                self._nvml = pynvml
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            unknown: tuple[Source, str] = (
                "nvml",
                f"NVML does not start: error {error.value}; see the output of nvidia-smi",
            )
            source, problem = _START_PROBLEMS.get(error.value, unknown)
            return _Driver(source=source, problem=problem)
        cuda = _asked(pynvml, "nvmlSystemGetCudaDriverVersion")
        return _Driver(
            source="nvml" if count else "cpu",
            count=count,
            version=_asked(pynvml, "nvmlSystemGetDriverVersion"),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _devices(self, count: int) -> Iterable[Device]:
        cpus = usable_cpus()
        for index in range(count):
            before = self._readers.get(index)
            if before is None or not before.stuck:
                known: dict[str, Any] = {}
                if before is not None:
                    known.update((key, before.fields[key]) for key in _IDENTITY if key in before.fields)
                self._readers[index] = _DeviceReader(self._nvml, index, known, cpus)
        until = time.monotonic() + self._deadline_s
        for index in range(count):
            yield from self._readers[index].rows(until, self._silence())

    def _inventory(self, devices: tuple[Device, ...], driver: "_Driver") -> Inventory:
        return Inventory(
            host=host_name(),
            source=driver.source,
            devices=devices,
            cpus=usable_cpus(),
            memory_mib=memory_mib(),
            driver_version=driver.version,
            cuda_version=driver.cuda,
            problem=driver.problem,
        )

    def _silence(self) -> str:
        return f"NVML did not answer within {self._deadline_s:g} s"


class _Driver(msgspec.Struct, frozen=True, kw_only=True):
    source: Source
    count: int = 0
    version: str | None = None
    cuda: str | None = None
    problem: str | None = None


class _DeviceReader:
    """Reads one device in one thread, field by field: what was read is seen while a later call is stuck."""

    def __init__(self, nvml: Any, index: int, known: dict[str, Any], cpus: tuple[int, ...]) -> None:
        self.fields: dict[str, Any] = {"index": index, "uuid": f"unknown-{index}", "name": "unknown", **known}
        self._instances: list[dict[str, Any]] = []
        self._health: Health = "ok"
        self._problem: str | None = None
        self._nvml, self._cpus = nvml, cpus
        self._reading = Reading(self._read, f"nvml-device-{index}")
        self.stuck = False

    def rows(self, until: float, silence: str) -> list[Device]:
        """Return the device and its MIG instances as known at `until` (monotonic), or at once if it was stuck."""
        self.stuck = not self._reading.wait(0 if self.stuck else until - time.monotonic())
        if not self.stuck:
            self._reading.result()
        health, problem = ("error", silence) if self.stuck and self._health == "ok" else (self._health, self._problem)
        rows = [dict(self.fields), *(dict(instance) for instance in list(self._instances))]
        on_instances = {process.pid for row in rows[1:] for process in row.get("processes", ())}
        rows[0]["processes"] = [each for each in rows[0].get("processes", ()) if each.pid not in on_instances]
        return [_device(row, health, problem) for row in rows]

    def _read(self) -> None:
        index = self.fields["index"]
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as error:
            unknown: tuple[Health, str] = ("error", f"NVML cannot open it: error {error.value}")
            self._health, self._problem = _DEVICE_PROBLEMS.get(error.value, unknown)
            return
        self._identity(handle, self.fields)
        self._place(handle)
        self._memory(handle, self.fields)
        self.fields["processes"] = self._processes(handle)
        self._mig(handle)
        for field, call, arguments, meaning in _FIELDS:
            answer = self._ask(call, handle, *arguments)
            self.fields[field] = None if answer is None else meaning(answer)

    def _identity(self, handle: Any, fields: dict[str, Any]) -> None:
        for field, call in (("uuid", "nvmlDeviceGetUUID"), ("name", "nvmlDeviceGetName")):
            answer = self._ask(call, handle)
            if answer:
                fields[field] = answer

    def _place(self, handle: Any) -> None:
        pci = self._ask("nvmlDeviceGetPciInfo", handle)
        if pci is not None:
            self.fields["bus_id"] = pci.busId if isinstance(pci.busId, str) else pci.busId.decode()
        if self._cpus:
            masks = self._ask("nvmlDeviceGetCpuAffinity", handle, self._cpus[-1] // 64 + 1)
            if masks is not None:
                self.fields["cpus"] = tuple(cpu for cpu in self._cpus if masks[cpu // 64] >> cpu % 64 & 1)

    def _memory(self, handle: Any, fields: dict[str, Any]) -> None:
        """Version 2 separates what the driver keeps for itself from what is used; version 1 counts it as used."""
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        if memory is not None:
            fields["memory_reserved_mib"] = memory.reserved >> 20
        else:
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        if memory is not None and memory.total >> 20:
            fields["memory_total_mib"], fields["memory_used_mib"] = memory.total >> 20, memory.used >> 20

    def _processes(self, handle: Any) -> list[DeviceProcess]:
        """Merge the lists to one entry a pid; MPS clients compute. Where lists differ, the larger amount counts."""
        kinds: dict[int, set[str]] = {}
        memory: dict[int, int | None] = {}
        for list_name, kind in (("Compute", "C"), ("Graphics", "G"), ("MPSCompute", "C")):
            for pid, used in self._list(f"nvmlDeviceGet{list_name}RunningProcesses", handle):
                kinds.setdefault(pid, set()).add(kind)
                known = memory.get(pid)
                memory[pid] = known if used is None else max(used >> 20, known or 0)
        return [
            DeviceProcess(pid=pid, memory_mib=memory[pid], kind="+".join(sorted(kinds[pid]))) for pid in sorted(kinds)
        ]

    def _list(self, call: str, handle: Any) -> list[tuple[int, int | None]]:
        for version in ("_v3", "_v2"):
            entries = self._ask(call + version, handle)
            if entries is not None:
                return [(int(entry.pid), entry.usedGpuMemory) for entry in entries]
        library = self._nvml.nvmlLib
        if hasattr(library, call) and not hasattr(library, f"{call}_v2") and not hasattr(library, f"{call}_v3"):
            return _first_list(getattr(library, call), handle)
        return []

    def _mig(self, handle: Any) -> None:
        modes = self._ask("nvmlDeviceGetMigMode", handle)
        self.fields["mig_mode"] = None if modes is None else modes[0] == 1
        if not self.fields["mig_mode"]:
            return
        shared: dict[str, Any] = {key: self.fields[key] for key in _OF_THE_BOARD if key in self.fields}
        for mig_index in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, mig_index)
            if instance is None:
                continue
            uuid = f"unknown-{shared['index']}-{mig_index}"
            fields = {**shared, "mig_index": mig_index, "uuid": uuid, "name": self.fields["name"]}
            self._instances.append(fields)
            self._identity(instance, fields)
            self._memory(instance, fields)
            fields["processes"] = self._processes(instance)

    def _ask(self, call: str, *arguments: Any) -> Any:
        """Return the answer of a call, or None; what ails the whole device is noted on the way."""
        return _asked(self._nvml, call, *arguments, note=self._note)

    def _note(self, code: int) -> None:
        if code in _SEVERE and self._health == "ok":
            self._health, self._problem = _DEVICE_PROBLEMS[code]


def _asked(nvml: Any, call: str, *arguments: Any, note: Callable[[int], None] | None = None) -> Any:
    function = getattr(nvml, call, None)
    if function is None:
        return None  # this version of the binding lacks it
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if note is not None:
            note(error.value)
    except ValueError:
        pass  # a text that is no UTF-8
    return None


def _first_list(function: Any, handle: Any) -> list[tuple[int, int | None]]:
    """Return pids and bytes by the first form of the call (drivers before R450), which the binding no longer offers."""
    import ctypes

    class Entry(ctypes.Structure):
        _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong))  # nvmlProcessInfo_v1_t

    count = ctypes.c_uint(256)
    entries = (Entry * count.value)()
    if function(handle, ctypes.byref(count), entries) != 0:
        return []
    not_available = ctypes.c_ulonglong(-1).value
    uses = [(entry.pid, entry.used) for entry in entries[: count.value]]
    return [(pid, None if used == not_available else used) for pid, used in uses]


def _device(fields: dict[str, Any], health: Health, problem: str | None) -> Device:
    processes = []
    for process in fields.pop("processes", ()):
        user, command = process_owner(process.pid)
        processes.append(msgspec.structs.replace(process, user=user, command=command))
    return Device(**fields, health=health, problem=problem, processes=tuple(processes))
