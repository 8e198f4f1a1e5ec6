"""What a process inherits beside its environment: read where a job is submitted, applied where a replica starts.

Else a job of the daemon would have the daemon's umask, limits, nice value and CPUs.
"""

import contextlib
import os
import resource
from typing import Final

from gpusched.model.job import ProcessAttributes

__all__ = ["apply_attributes", "cpus_of_replica", "current_attributes", "what_is_not_allowed"]

_LIMITS: Final = {name.removeprefix("RLIMIT_"): getattr(resource, name) for name in dir(resource) if "RLIMIT_" in name}
_UNLIMITED: Final = resource.RLIM_INFINITY
_LEAST_NICE: Final = -20
_SYS_NICE, _SYS_RESOURCE = 23, 24
"""The capabilities (linux/capability.h) to lower a nice value, and to raise a hard limit."""

_NICE_OF_LIMIT: Final = 20  # RLIMIT_NICE is 20 less the lowest nice value that is allowed (getrlimit(2))


def current_attributes() -> ProcessAttributes:
    """Return the attributes of this process."""
    return ProcessAttributes(
        umask=_umask(),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        limits={name: resource.getrlimit(number) for name, number in _LIMITS.items()},
    )


def cpus_of_replica(planned: tuple[int, ...], attributes: ProcessAttributes | None) -> set[int]:
    """Return the CPUs for a replica: those of the plan that the submitter's processes may use, or all of the latter.

    Without `attributes` the submitter is the parent of this process. Empty: the replica keeps this process's.
    """
    if attributes is None:
        return set(planned) & os.sched_getaffinity(0)
    return set(planned) & set(attributes.cpus) or set(attributes.cpus)


def apply_attributes(attributes: ProcessAttributes) -> None:
    """Give this process all but the CPUs, as far as the kernel allows it. It may run between fork and exec."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _nearest_nice(attributes.nice))
    for name, (soft, hard) in attributes.limits.items():
        number = _LIMITS.get(name)
        if number is not None:
            _limit(number, soft, hard)
    os.umask(attributes.umask)


def what_is_not_allowed(attributes: ProcessAttributes | None) -> list[str]:
    """Return what processes below this one cannot have of the attributes, as plain text of a log."""
    if attributes is None:
        return []
    found = []
    nice = _nearest_nice(attributes.nice)
    if nice != attributes.nice:
        found.append(f"the nice value {attributes.nice} is not allowed here, it is {nice}")
    for name, (soft, _) in attributes.limits.items():
        number = _LIMITS.get(name)
        most = _UNLIMITED if number is None else resource.getrlimit(number)[1]
        if _is_less(most, soft) and not _has_capability(_SYS_RESOURCE):
            found.append(f"a limit {name} of {_shown(soft)} is not allowed here, it is {_shown(most)}")
    return found


def _nearest_nice(wanted: int) -> int:
    """Return the nice value that this process may have and that is nearest to the one that is `wanted`."""
    allowed = resource.getrlimit(resource.RLIMIT_NICE)[0]
    least = _LEAST_NICE if allowed == _UNLIMITED else _NICE_OF_LIMIT - allowed
    now = os.getpriority(os.PRIO_PROCESS, 0)
    return wanted if _has_capability(_SYS_NICE) else max(wanted, min(now, least))


def _has_capability(number: int) -> bool:
    """Return whether this process has a capability (capabilities(7)); root in a container may lack it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 (pathlib is heavy)
            effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(effective >> number & 1)


def _limit(number: int, soft: int, hard: int) -> None:
    """Set both limits; a hard one that would have to be raised stays as it is, and bounds the soft one."""
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):
        most = resource.getrlimit(number)[1]
        with contextlib.suppress(OSError, ValueError):
            lowered = most if _is_less(most, hard) else hard
            resource.setrlimit(number, (lowered if _is_less(lowered, soft) else soft, lowered))


def _is_less(one: int, other: int) -> bool:
    return one != _UNLIMITED and (other == _UNLIMITED or one < other)


def _shown(limit: int) -> str:
    return "unlimited" if limit == _UNLIMITED else str(limit)


def _umask() -> int:
    """Return the umask without changing it, where the kernel shows it (proc(5), since Linux 4.7)."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 (pathlib is heavy)
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration):
        umask = os.umask(0o077)
        os.umask(umask)
        return umask
