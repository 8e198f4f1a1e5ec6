"""What the operating system knows of this host: its name, CPUs, memory, and whose process a pid is.

It must not know about devices. psutil's errors end here: what cannot be read is None.
"""

import os

__all__ = ["host_name", "memory_mib", "process_owner", "usable_cpus"]


def host_name() -> str:
    """Return the name of this host."""
    return os.uname().nodename


def usable_cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may run on, as a container or a batch system left it (sched_setaffinity(2))."""
    return tuple(sorted(os.sched_getaffinity(0)))


def memory_mib() -> int | None:
    """Return the host's memory in MiB, or None where it cannot be read."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError):
        return None


def process_owner(pid: int) -> tuple[str | None, str | None]:
    """Return user and command line of a process, None for what is not to be known.

    Bytes of the command line that are no UTF-8 are replaced: it goes into JSON.
    """
    import psutil  # a device in no use needs none of it

    user = command = None
    try:
        process = psutil.Process(pid)
        user = process.username()
        command = os.fsencode(" ".join(process.cmdline()) or process.name()).decode(errors="replace")
    except (psutil.Error, OSError, ValueError):
        pass  # it ended, or it is another user's: what was read so far stands
    return user, command
