"""What the operating system knows of this host: its name, CPUs, memory, and whose process a pid is.

It must not know about devices. It reads /proc (proc(5)) itself, in a tenth of the time that a library for it takes to
be imported. What cannot be read is None.
"""

import os
import pwd

__all__ = ["host_name", "memory_mib", "process_owner", "usable_cpus"]


def host_name() -> str:
    """Return the name of this host."""
    return os.uname().nodename


def usable_cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may run on, as a container or a batch system left it (sched_setaffinity(2))."""
    return tuple(sorted(os.sched_getaffinity(0)))


def memory_mib() -> int | None:
    """Return the host's memory in MiB, or None where it cannot be read."""
    total = _field("/proc/meminfo", b"MemTotal:")
    return None if total is None else total >> 10


def process_owner(pid: int) -> tuple[str | None, str | None]:
    """Return the user and the command line of `pid`; each is None where this process may not see it.

    Bytes of the command line that are no UTF-8 are replaced: it goes into JSON.
    """
    uid = _field(f"/proc/{pid}/status", b"Uid:")
    words = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ") or _read(f"/proc/{pid}/comm").rstrip(b"\n")
    return None if uid is None else _user(uid), words.decode(errors="replace") or None


def _field(path: str, name: bytes) -> int | None:
    """Return the first number behind a name that begins a line."""
    for line in _read(path).splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (pathlib is heavy)
            return file.read()
    except OSError:
        return b""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user, whom nobody here knows
        return str(uid)
