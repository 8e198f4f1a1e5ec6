"""Reads the devices of this host with NVML. It knows pynvml, as nvml_events does, and imports it when it is to read.

NVML may lack a call, refuse a field, lose a device, or never answer; none of that leaves this module as an error: a
field that cannot be read is None, a device that cannot be read keeps its row, and no read waits longer than a deadline.
It must not know about jobs, leases or plans.

Facts: NVML API reference (nvml.h), error codes by number so that reading them needs no library.
"""

import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gpusched.model.device import Device, Inventory, Source
from gpusched.probe.host import host_name, memory_mib, usable_cpus
from gpusched.probe.nvml_device import DEVICE_PROBLEMS, IDENTITY, NO_PERMISSION, OPERATING_SYSTEM, DeviceReader
from gpusched.probe.nvml_fields import asked
from gpusched.probe.nvml_usage import not_ahead
from gpusched.probe.reading import Reading

__all__ = ["NvmlProbe", "library_is_there"]

_LIBRARY: Final = "libnvidia-ml.so.1"  # as pynvml searches it
_DRIVER_NOT_LOADED: Final = 9
_LIB_RM_VERSION_MISMATCH: Final = 18

_START_PROBLEMS: Final[dict[int, tuple[Source, str]]] = {
    _DRIVER_NOT_LOADED: ("cpu", "the NVIDIA driver is not loaded: load it (modprobe nvidia), or install it again"),
    _LIB_RM_VERSION_MISMATCH: (
        "nvml",
        "driver and library do not match: the NVIDIA driver was upgraded while in use; reboot or reload the modules",
    ),
    NO_PERMISSION: ("nvml", "no permission to use the NVIDIA driver: check who may open /dev/nvidiactl"),
    OPERATING_SYSTEM: ("nvml", "the operating system keeps this process from the NVIDIA driver: check its cgroup"),
}


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
        self._readers: dict[int, DeviceReader] = {}

    def read(self) -> Inventory:
        """Return a snapshot of this host: source "nvml", or "cpu" if it has no device, no driver or no library."""
        start = self._begun()
        self._silent = not start.wait(0 if self._silent else self._deadline_s)
        if self._silent:
            return self._inventory((), _Driver(source="nvml", problem=self._silence()))
        driver, self._start = start.result(), None
        devices = tuple(self._devices(driver.count))
        if devices and all(device.problem == DEVICE_PROBLEMS[NO_PERMISSION][1] for device in devices):
            source, problem = _START_PROBLEMS[NO_PERMISSION]
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
        cuda = asked(pynvml, "nvmlSystemGetCudaDriverVersion")
        return _Driver(
            source="nvml" if count else "cpu",
            count=count,
            version=asked(pynvml, "nvmlSystemGetDriverVersion"),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _devices(self, count: int) -> Iterable[Device]:
        cpus = usable_cpus()
        for index in range(count):
            before = self._readers.get(index)
            if before is None or not before.stuck:
                known: dict[str, Any] = {}
                seen_us = None
                if before is not None:
                    known.update((key, before.fields[key]) for key in IDENTITY if key in before.fields)
                    seen_us = not_ahead(before.seen_us, time.time_ns() // 1000)
                self._readers[index] = DeviceReader(self._nvml, index, known, cpus, seen_us)
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
