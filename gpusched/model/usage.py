"""What a process really used. A figure that nothing reports is None, never 0."""

from typing import Final

import msgspec

__all__ = ["MOST_ATTEMPTS", "DeviceUse", "RoleUsage", "Usage"]

MOST_ATTEMPTS: Final = 3
"""Attempts of one replica of which the usage is kept, the latest."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt of a replica used, of its devices together and of the host. MiB, seconds, joules.

    `share_mib`: what it was given of its devices: another attempt may have had less. `cpu_s`: CPU time of its own
    process and of those that it has waited for. `host_mib`: the most that a sample showed of its processes' memory,
    of which shared pages count in parts (PSS, proc_pid_smaps(5)); a sample is taken soon after the start and then
    once a minute. `device_mib`: the most that the driver showed for its processes at a poll of the daemon, every
    five seconds; it includes the context of each process. `sm_percent`: the part of the time in which its kernels
    ran, on the average of its devices, as far as the driver reports it. `device`: the model of its first device,
    and `driver` the driver's version. `peak_mib` is the most that its program had allocated by what the `framework`
    itself counts, and `pool_mib` the most that this had taken for that, over all its `processes` that have started
    a framework. `lacked_mib`: the limit at which it ended for want of its device's memory. `context_mib`: what its
    one process on one device had taken beside the pool, where both are known and the driver's figure was the same
    for two polls at least. `energy_j`: what its devices used, from the first poll that has met it on, where the
    driver counts it; `energy_attributed`: others were on them meanwhile, and this is its part by the time in which
    its kernels ran.
    """

    attempt: int
    seconds: float
    share_mib: int | None = None
    cpu_s: float | None = None
    host_mib: int | None = None
    device_mib: int | None = None
    sm_percent: float | None = None
    device: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    peak_mib: int | None = None
    pool_mib: int | None = None
    lacked_mib: int | None = None
    processes: int | None = None
    context_mib: int | None = None
    driver: str | None = None
    energy_j: float | None = None
    energy_attributed: bool = False


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon has seen of one attempt of a replica: the most memory on its devices together, in MiB.

    Its kernels ran for `busy_s` of the `watched_s` seconds of which that is known. `device`: the model of its first;
    `driver`: its version. `polls`: how often the memory was seen to be the most, or nearly; `processes`: the most that
    were seen at once, one on two devices counting twice. Energy as in Usage.
    """

    replica: str
    attempt: int
    device_mib: int | None = None
    device: str | None = None
    busy_s: float = 0.0
    watched_s: float = 0.0
    driver: str | None = None
    polls: int = 0
    processes: int = 0
    energy_j: float | None = None
    energy_attributed: bool = False


class RoleUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the replicas of one role of a job used. MiB, seconds, Unix times. What is not known is None.

    Memory is that of one replica: the most that any of them used, and for `limit_mib` and `share_mib` the least that
    any was given. `cpu_s` and `energy_j` are of all together, `sm_percent` is their average. `ended`: None while it
    runs. `seconds` is the time of the replica that ran longest, `run_s` that of all. `given_mib_s`: shares by time, of
    the attempts of which the use is known; `used_mib_s`: the peak of each by its time, and at most its share; None
    where none is known.
    """

    job: str
    role: str
    what: str
    state: str
    started: float
    ended: float | None
    replicas: int
    name: str | None = None
    restarts: int = 0
    device: str | None = None
    limit_mib: int = 0
    share_mib: int = 0
    device_mib: int | None = None
    peak_mib: int | None = None
    pool_mib: int | None = None
    framework: str | None = None
    framework_version: str | None = None
    host_mib: int | None = None
    cpu_s: float | None = None
    sm_percent: float | None = None
    energy_j: float | None = None
    energy_attributed: bool = False
    seconds: float = 0.0
    run_s: float = 0.0
    given_mib_s: float = 0.0
    used_mib_s: float | None = None

    @property
    def used_part(self) -> float | None:
        """The part of its share of a device that was used; None without one, or where that is not known."""
        return self.device_mib / self.share_mib if self.share_mib and self.device_mib is not None else None
