"""One device and its MIG instances, read with NVML in a thread of their own. It must not know about jobs.

Facts: NVML API reference (nvml.h); error codes by number so that reading them needs no library.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpusched.model.device import Device, Health
from gpusched.probe.host import process_owner
from gpusched.probe.nvml_accounting import with_peaks
from gpusched.probe.nvml_fields import FIELDS, NO_ANSWERS, asked
from gpusched.probe.nvml_processes import processes_on
from gpusched.probe.nvml_usage import latest, samples_since, with_use
from gpusched.probe.reading import Reading

__all__ = ["DEVICE_PROBLEMS", "IDENTITY", "NO_PERMISSION", "OPERATING_SYSTEM", "DeviceReader"]

NO_PERMISSION: Final = 4
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16
OPERATING_SYSTEM: Final = 17
DEVICE_PROBLEMS: Final[dict[int, tuple[Health, str]]] = {
    NO_PERMISSION: ("error", "no permission to read it"),
    _GPU_IS_LOST: ("lost", "it has fallen off the bus; reboot the host"),
    _RESET_REQUIRED: ("error", "it needs a reset (nvidia-smi --gpu-reset)"),
    OPERATING_SYSTEM: ("error", "the operating system keeps this process from it"),
}
_SEVERE: Final = (_GPU_IS_LOST, _RESET_REQUIRED)
_OF_THE_BOARD: Final = ("index", "bus_id", "cpus")
IDENTITY: Final = ("uuid", "name", "bus_id", "cpus", "memory_total_mib")


class DeviceReader:
    """Reads one device in one thread, field by field: what was read is seen while a later call is stuck.

    `seen_us` is the time stamp of the latest sample of its use, for the next reader; None before the first reading.
    """

    def __init__(
        self, nvml: Any, index: int, known: dict[str, Any], cpus: tuple[int, ...], seen_us: int | None
    ) -> None:
        self.fields: dict[str, Any] = {"index": index, "uuid": f"unknown-{index}", "name": "unknown", **known}
        self._instances: list[dict[str, Any]] = []
        self._health: Health = "ok"
        self._problem: str | None = None
        self._nvml, self._cpus, self._mps = nvml, cpus, False
        self.seen_us = seen_us
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
            self._health, self._problem = DEVICE_PROBLEMS.get(error.value, unknown)
            return
        self._identity(handle, self.fields)
        self._place(handle)
        self._memory(handle, self.fields)
        self.fields["processes"], self._mps = processes_on(handle, self._ask, self._nvml.nvmlLib)
        self._mig(handle)
        for field, call, arguments, meaning in FIELDS:
            if self.fields.get(field) is None:
                answer = self._ask(call, handle, *arguments)
                self.fields[field] = None if answer is None else meaning(answer)
        if not self.fields["mig_mode"]:
            self._usage(handle)
            self.fields["processes"] = with_peaks(handle, self.fields["processes"], self._ask)

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
            fields["processes"], _ = processes_on(instance, self._ask, self._nvml.nvmlLib)

    def _usage(self, handle: Any) -> None:
        samples = samples_since(handle, self._ask, self.seen_us or 0)
        if samples is None:
            return
        if self.seen_us is not None:
            percent = self.fields["utilization_percent"]
            self.fields["processes"] = with_use(self.fields["processes"], samples, percent, mps=self._mps)
        self.seen_us = latest(samples, self.seen_us)

    def _ask(self, call: str, *arguments: Any, answers: Mapping[int, object] = NO_ANSWERS) -> Any:
        """Return the answer of a call, or None; what ails the whole device is noted on the way."""
        return asked(self._nvml, call, *arguments, note=self._note, answers=answers)

    def _note(self, code: int) -> None:
        if code in _SEVERE and self._health == "ok":
            self._health, self._problem = DEVICE_PROBLEMS[code]


def _device(fields: dict[str, Any], health: Health, problem: str | None) -> Device:
    processes = []
    for process in fields.pop("processes", ()):
        user, command = process_owner(process.pid)
        processes.append(msgspec.structs.replace(process, user=user, command=command))
    return Device(**fields, health=health, problem=problem, processes=tuple(processes))
