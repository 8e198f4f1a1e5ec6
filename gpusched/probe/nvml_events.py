"""Xid errors that devices report. Lost devices and memory errors are found by reading the devices.

A thread waits in NVML, so that nothing else ever does; it costs a wake-up in some seconds. Without a driver, or with
one that has no events, there are none. It must not know what an event means for a device.

Facts: NVML API reference, event handling (Linux only); an event has the numbers of the physical device, also under MIG.
"""

import collections
import threading
from typing import Any, Final

import msgspec

from gpusched.probe.nvml import library_is_there

__all__ = ["DeviceEvent", "NvmlEvents"]

_WAIT_MS: Final = 5000
_RETRY_S: Final = 60.0
_MOST_EVENTS: Final = 1000
_TIMEOUT: Final = 10
_GPU_IS_LOST: Final = 15
_XID: Final = 8


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Xid of the device `uuid`."""

    uuid: str
    number: int


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

    def _wait(self, nvml: Any, event_set: Any, devices: dict[int, str]) -> None:
        try:
            event = nvml.nvmlEventSetWait_v2(event_set, _WAIT_MS)
        except nvml.NVMLError as error:
            if error.value == _GPU_IS_LOST:  # it reports only that there is one, again and again
                self._closed.wait(_WAIT_MS / 1000)
            elif error.value != _TIMEOUT:
                raise
            return
        uuid = devices.get(_address(event.device))
        if uuid is not None and event.eventType == _XID:
            self._unread.append(DeviceEvent(uuid=uuid, number=int(event.eventData)))


def _registered(nvml: Any, event_set: Any) -> dict[int, str]:
    """Register for the Xids of the devices; return their uuids by their handle's address, which an event carries."""
    devices = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            nvml.nvmlDeviceRegisterEvents(handle, _XID, event_set)
        except nvml.NVMLError:  # lost, forbidden, or too old: the others still report
            continue
        devices[_address(handle)] = uuid
    return devices


def _address(handle: Any) -> int:
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value or 0
