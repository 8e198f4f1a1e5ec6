"""Modules that look like frameworks on two devices, as far as gpusched knows them; asking one too early is an error."""

from pathlib import Path

__all__ = ["imitate"]

_TORCH = """
__version__ = "9.8.7+cu130"
queued = []


class cuda:
    started = False
    allocated = [(3 << 20) + 1, 5 << 20]
    reserved = [20 << 20, 22 << 20]

    class memory:
        set_per_process_memory_fraction = lambda *given: None

    @staticmethod
    def _lazy_call(call):
        call() if cuda.started else queued.append(call)

    @staticmethod
    def init():
        cuda.started = True
        while queued:
            queued.pop(0)()

    is_initialized = staticmethod(lambda: cuda.started)
    device_count = staticmethod(lambda: 2)

    @staticmethod
    def max_memory_allocated(device):
        assert cuda.started, "asking has started CUDA"
        return cuda.allocated[device]

    @staticmethod
    def max_memory_reserved(device):
        return cuda.reserved[device]
"""
_JAXLIB = """
calls = []


def make_c_api_client(name, options=None):
    calls.append(name)
    return Client(name)


class Client:
    def __init__(self, platform):
        self.platform = platform

    def local_devices(self):
        return [Device(), Device()]


class Device:
    stats = {"peak_bytes_in_use": 1 << 20, "peak_pool_bytes": 8 << 20, "bytes_limit": 999 << 20}

    def memory_stats(self):
        return Device.stats
"""
_JAX = """
__version__ = "0.10.2"
from jaxlib import xla_client
from jax._src import xla_bridge


def devices():
    cpu = xla_client.Client("cpu")
    cpu.local_devices = None
    xla_bridge._backends = {"cpu": cpu, "cuda": xla_client.make_c_api_client("cuda")}
"""
_CUPY = """
__version__ = "14.0"


class cuda:
    _allocator = None
    get_allocator = staticmethod(lambda: cuda._allocator)

    @staticmethod
    def set_allocator(allocator):
        cuda._allocator = allocator

    class runtime:
        devices = 1
        getDeviceCount = staticmethod(lambda: cuda.runtime.devices)


class Pool:
    total = 0

    def malloc(self, size):
        self.total += size
        return size

    def total_bytes(self):
        return self.total


_pool = Pool()
get_default_memory_pool = lambda: _pool
cuda.set_allocator(_pool.malloc)
"""
_FILES = {
    "torch.py": _TORCH,
    "jaxlib/__init__.py": "",
    "jaxlib/xla_client.py": _JAXLIB,
    "jax/__init__.py": _JAX,
    "jax/_src/__init__.py": "",
    "jax/_src/xla_bridge.py": "_backends = {}",
    "cupy.py": _CUPY,
}


def imitate(directory: Path) -> Path:
    """Write all of them into `directory`, and return it."""
    for name, text in _FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory
