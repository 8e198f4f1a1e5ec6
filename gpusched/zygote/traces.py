"""What imports leave in a process that its forks would share, or not have: then none is forked for several jobs."""

import os
import weakref
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Final, Self

from msgspec.structs import replace

from gpusched.linux.attributes import current_attributes
from gpusched.linux.processes import has_children

__all__ = ["Traces", "descriptors"]

_STDERR: Final = 2


class Traces:
    """The process as it is now."""

    def __init__(self) -> None:
        self._files = descriptors()
        self._shared = _shared_memory()
        self._directories = _temporary_directories()
        self._attributes = replace(current_attributes(), cpus=())  # which each replica is given

    def beyond(self, before: Self) -> str | None:
        """Return what is new since `before`, as text; None if nothing is."""
        if files := self._files - before._files:
            return f"a file open: {os.readlink(f'/proc/self/fd/{min(files)}')}"  # noqa: PTH115
        if has_children():
            return "a process running"
        if self._shared > before._shared:
            return "memory that forks would share"
        if self._directories > before._directories:
            return "a temporary directory that the first of the forks would remove"
        if self._attributes != before._attributes:
            return "another umask, limit or priority of the process"
        return None


def descriptors() -> set[int]:
    """Return what is open beside the streams."""
    found = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 (pathlib is heavy)
    return {one for one in found if one > _STDERR and os.path.exists(f"/proc/self/fd/{one}")}  # noqa: PTH110


def _shared_memory() -> int:
    """Return how many mappings are shared with forks and can be written to (proc_pid_maps(5))."""
    with open("/proc/self/maps", "rb") as file:  # noqa: PTH123
        return sum(line.split(maxsplit=2)[1] == b"rw-s" for line in file)


def _temporary_directories() -> int:
    cleanup = TemporaryDirectory._cleanup.__func__  # type: ignore[attr-defined]  # noqa: SLF001 (there is no other way)
    with suppress(AttributeError):
        found = list(weakref.finalize._registry.values())  # type: ignore[attr-defined]  # noqa: SLF001
        return sum(getattr(one.func, "__func__", None) is cleanup for one in found)
    return 0
