"""The most memory that each process on a device has held, where NVML's accounting is on.

Source: nvml.h, nvmlDeviceGetAccountingStats: "maximum total memory in bytes that was ever allocated by the process", so
that what it took and gave back between two readings is in it. Only root can turn accounting on (nvidia-smi -am 1), and
not with MIG. No GPU has run this yet: on those that gpusched was tried on, it was off.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from gpusched.model.device import DeviceProcess
from gpusched.probe.nvml_fields import Ask

__all__ = ["with_peaks"]

_ON: Final = 1


def with_peaks(handle: object, processes: Iterable[DeviceProcess], ask: Ask) -> list[DeviceProcess]:
    """Return the processes with `peak_mib`, as far as the driver keeps account of them."""
    if ask("nvmlDeviceGetAccountingMode", handle) != _ON:
        return list(processes)
    return [replace(one, peak_mib=_peak_mib(handle, one.pid, ask)) for one in processes]


def _peak_mib(handle: object, pid: int, ask: Ask) -> int | None:
    try:
        stats = ask("nvmlDeviceGetAccountingStats", handle, pid)
    except TypeError:  # nvidia-ml-py sets None into a C number where the driver does not report the amount
        return None
    if getattr(stats, "isRunning", 0) != _ON:  # an earlier process of that pid, which has ended
        return None
    peak = getattr(stats, "maxMemoryUsage", None)
    return None if not peak else int(peak) >> 20
