"""What a process inherits beside its environment: read where a job is submitted, applied where a replica starts.

Else a job of the daemon would have the daemon's umask, limits, nice value and CPUs.
"""

import contextlib
import os
import resource
from typing import Final

from gpusched.model.job import ProcessAttributes

__all__ = ["apply_attributes", "cpus_of_replica", "current_attributes"]

_LIMITS: Final = {name.removeprefix("RLIMIT_"): getattr(resource, name) for name in dir(resource) if "RLIMIT_" in name}
_UNLIMITED: Final = resource.RLIM_INFINITY


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
    """Give this process all but the CPUs; stderr gets what the kernel refused. It may run between fork and exec."""
    nice = _renice(attributes.nice)
    refused = [] if nice == attributes.nice else [f"the nice value {attributes.nice} is not allowed here, it is {nice}"]
    for name, (soft, hard) in attributes.limits.items():
        number = _LIMITS.get(name)
        if number is None:
            continue
        _limit(number, soft, hard)
        found = resource.getrlimit(number)[0]
        if found != soft:
            refused.append(f"a limit {name} of {_shown(soft)} is not allowed here, it is {_shown(found)}")
    os.umask(attributes.umask)
    with contextlib.suppress(OSError):
        os.write(2, "".join(f"--- {text} ---\n" for text in refused).encode())


def _renice(wanted: int) -> int:
    """Take the nice value that this process may have and that is nearest to the one that is `wanted`; return it."""
    now = os.getpriority(os.PRIO_PROCESS, 0)
    for nice in range(wanted, max(wanted, now) + 1):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            return nice
    return now


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
