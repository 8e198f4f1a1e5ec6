"""What the tests on a GPU share: the device, or the reason why they are skipped."""

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

import pytest


class RealDevice(NamedTuple):
    """One NVIDIA GPU of this host; memory in MiB."""

    number: int
    uuid: str
    name: str
    total_mib: int


@pytest.fixture(scope="session")
def real_device() -> Iterator[RealDevice]:
    """The first GPU; without one, or without its driver, the test is skipped."""
    import pynvml

    try:
        pynvml.nvmlInit()
        ctypes.CDLL("libcuda.so.1")
    except (pynvml.NVMLError, OSError) as error:
        pytest.skip(f"no NVIDIA GPU on this host: {error}")
    if pynvml.nvmlDeviceGetCount() == 0:
        pytest.skip("no NVIDIA GPU on this host: the driver knows none")
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    total = pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    yield RealDevice(0, pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle), total)
    pynvml.nvmlShutdown()


def used_mib(device: RealDevice) -> int:
    """What all processes together use of the device now; NVML may not see the processes of another PID namespace."""
    import pynvml

    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(device.number)).used) >> 20
