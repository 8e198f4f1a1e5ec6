"""What a process really used. A figure that nothing reports is None, never 0."""

import msgspec

__all__ = ["DeviceUse", "Usage"]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt of a replica used, of its devices together and of the host. MiB, seconds, joules.

    `cpu_s`: CPU time of its own process and of those that it has waited for. `host_mib`: the most that a sample showed
    of its processes' memory, of which shared pages count in parts (PSS, proc_pid_smaps(5)); a sample is taken soon
    after the start and then once a minute. `device_mib`: the most that the driver showed for its processes at a poll of
    the daemon, every five seconds; it includes the context of each process.
    """

    attempt: int
    seconds: float
    cpu_s: float | None = None
    host_mib: int | None = None
    device_mib: int | None = None


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon has seen of one attempt of a replica: the most memory on its devices together, in MiB."""

    replica: str
    attempt: int
    device_mib: int
