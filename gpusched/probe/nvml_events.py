"""Events that devices report: Xid errors, double-bit memory errors, and that one has fallen off the bus.

A thread waits in NVML, so that nothing else ever does; it costs a wake-up in some seconds. Without a driver, or with
one that has no events, there are none. It must not know what an event means for a device.

Facts: NVML API reference, event handling (Linux only); an event has the numbers of the physical device, also under MIG.
"""

import collections
import threading
import time
from typing import Any, Final, Literal

import msgspec

from gpusched.probe.nvml import library_is_there

__all__ = ["DeviceEvent", "NvmlEvents"]

_WAIT_MS: Final = 5000
_RETRY_S: Final = 60.0
_MOST_EVENTS: Final = 1000
_TIMEOUT: Final = 10
_GPU_IS_LOST: Final = 15
_DOUBLE_BIT: Final = 2
_XID: Final = 8


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the device `uuid` at `time` (Unix seconds). `number` is that of an Xid, 0 for the others."""

    uuid: str
    kind: Literal["xid", "ecc", "lost"]
    number: int = 0
    time: float


class NvmlEvents:
    """The events of all devices of this host, from now on. Nothing here raises or waits.

    NVML counts how often it was started, so this stands beside any NvmlProbe. A driver that cannot be reached yet is
    asked again every minute.
    """

    def __init__(self) -> None:
        self._unread: collections.deque[DeviceEvent] = collections.deque(maxlen=_MOST_EVENTS)
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="nvml-events", daemon=True).start()

    def events(self) -> list[DeviceEvent]:
        """Return what happened since the last call, oldest first; the latest 1000 at the most."""
        return [self._unread.popleft() for _ in range(len(self._unread))]

    def waiting(self) -> bool:
        """Return whether `events` would return any."""
        return bool(self._unread)

    def close(self) -> None:
        """Listen no more; the thread ends by itself when its wait in NVML does."""
        self._closed.set()

    def _run(self) -> None:
        if not library_is_there():
            return
        import pynvml

        while not self._closed.is_set():
            try:
                pynvml.nvmlInit()
                try:
                    self._listen(pynvml)
                finally:
                    pynvml.nvmlShutdown()
            except pynvml.NVMLError:  # no driver yet, or one without events
                self._closed.wait(_RETRY_S)

    def _listen(self, nvml: Any) -> None:
        event_set = nvml.nvmlEventSetCreate()
        try:
            devices = _registered(nvml, event_set)
            while devices and not self._closed.is_set():
                self._wait(nvml, event_set, devices)
        finally:
            nvml.nvmlEventSetFree(event_set)
        self._closed.wait(_RETRY_S)  # no device has events

    def _wait(self, nvml: Any, event_set: Any, devices: dict[int, "_Listened"]) -> None:
        try:
            event = nvml.nvmlEventSetWait_v2(event_set, _WAIT_MS)
        except nvml.NVMLError as error:
            if error.value == _GPU_IS_LOST:
                self._find_lost(nvml, devices)
            elif error.value != _TIMEOUT:
                raise
            return
        device = devices.get(_address(event.device))
        if device is not None and event.eventType == _XID:
            self._append(device, "xid", int(event.eventData))
        elif device is not None and event.eventType == _DOUBLE_BIT:
            self._append(device, "ecc")

    def _find_lost(self, nvml: Any, devices: dict[int, "_Listened"]) -> None:
        """Report each lost device once. NVML reports only that there is one, again and again: hence the pause."""
        for device in devices.values():
            if not device.lost and _is_lost(nvml, device.handle):
                device.lost = True
                self._append(device, "lost")
        self._closed.wait(_WAIT_MS / 1000)

    def _append(self, device: "_Listened", kind: Literal["xid", "ecc", "lost"], number: int = 0) -> None:
        self._unread.append(DeviceEvent(uuid=device.uuid, kind=kind, number=number, time=time.time()))


class _Listened:
    def __init__(self, handle: Any, uuid: str) -> None:
        self.handle, self.uuid, self.lost = handle, uuid, False


def _registered(nvml: Any, event_set: Any) -> dict[int, _Listened]:
    """Register for all events of the devices; return these by their handle's address, which an event carries."""
    devices = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device = _Listened(handle, nvml.nvmlDeviceGetUUID(handle))
            can = nvml.nvmlDeviceGetSupportedEventTypes(handle)
            nvml.nvmlDeviceRegisterEvents(handle, can & (_XID | _DOUBLE_BIT), event_set)
        except nvml.NVMLError:  # lost, forbidden, or too old: the others still report
            continue
        devices[_address(handle)] = device
    return devices


def _is_lost(nvml: Any, handle: Any) -> bool:
    try:
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        return bool(error.value == _GPU_IS_LOST)
    return False


def _address(handle: Any) -> int:
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value or 0
