"""The processes on a device, as the lists of NVML have them: by newer and older calls. It must not know about jobs."""

from typing import Any

from gpusched.model.device import DeviceProcess
from gpusched.probe.nvml_fields import Ask

__all__ = ["processes_on"]


def processes_on(handle: Any, ask: Ask, library: Any) -> tuple[list[DeviceProcess], bool]:
    """Return the processes of a device or an instance, and whether clients of MPS are among them.

    The lists are merged to one entry a pid; MPS clients compute. Where they differ, the larger amount counts. `library`
    is the binding's own, for calls that the binding lacks.
    """
    kinds: dict[int, set[str]] = {}
    memory: dict[int, int | None] = {}
    mps = False
    for list_name, kind in (("Compute", "C"), ("Graphics", "G"), ("MPSCompute", "C")):
        for pid, used in _list(f"nvmlDeviceGet{list_name}RunningProcesses", handle, ask, library):
            mps = mps or list_name == "MPSCompute"
            kinds.setdefault(pid, set()).add(kind)
            known = memory.get(pid)
            memory[pid] = known if used is None else max(used >> 20, known or 0)
    processes = [
        DeviceProcess(pid=pid, memory_mib=memory[pid], kind="+".join(sorted(kinds[pid]))) for pid in sorted(kinds)
    ]
    return processes, mps


def _list(call: str, handle: Any, ask: Ask, library: Any) -> list[tuple[int, int | None]]:
    for version in ("_v3", "_v2"):
        entries = ask(call + version, handle)
        if entries is not None:
            return [(int(entry.pid), entry.usedGpuMemory) for entry in entries]
    if hasattr(library, call) and not hasattr(library, f"{call}_v2") and not hasattr(library, f"{call}_v3"):
        return _first_list(getattr(library, call), handle)
    return []


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
