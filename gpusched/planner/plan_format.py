"""The planner's texts: numbers of replicas, lists of GPUs, who holds memory. No decisions."""

from collections.abc import Iterable, Iterator, Sequence

from gpusched.model.device import DeviceProcess
from gpusched.model.plan import Replica, RoleRequest
from gpusched.planner.capacity import DeviceCapacity
from gpusched.units import FRACTION_ONE, number

__all__ = [
    "alone_lines",
    "asked",
    "foreign_lines",
    "gpus",
    "listed",
    "needed_by",
    "percent",
    "whole_line",
]

_MOST_LISTED = 8
_MOST_ROLES = 4


def asked(roles: Iterable[RoleRequest]) -> str:
    """Return what has to have a place: `1 learner of 2 whole GPUs and 32 actors of 512 MiB`."""
    placed = [role for role in roles if role.on_device and role.count]
    return listed([f"{number(role.count, role.name)} of {_size(role, 0)}" for role in placed])


def needed_by(roles: Iterable[RoleRequest], context_mib: int) -> str:
    """Return `2 whole GPUs (learner) + 1583 MiB × 10 (actor)`, contexts included."""
    placed = [role for role in roles if role.on_device and role.count]
    needs = [
        f"{_size(role, role.context_or(context_mib))}{f' × {role.count}' if role.count > 1 else ''} ({role.name})"
        for role in placed[:_MOST_ROLES]
    ]
    more = [f"{len(placed) - _MOST_ROLES} more roles"] if len(placed) > _MOST_ROLES else []
    return " + ".join(needs + more)


def whole_line(who: str, labels: Sequence[str], replica: Replica) -> str:
    """Return what a replica gets that has the devices of these labels to itself."""
    whole, each = ("the whole of", "") if len(labels) == 1 else (f"{len(labels)} whole devices,", " each")
    parts = f"{replica.limit_mib} MiB limit + {replica.context_mib} MiB context"
    return f"{who}: {whole} {gpus(labels)}: {parts}{each}, and nothing else is placed there"


def listed(parts: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def gpus(labels: Sequence[str]) -> str:
    """Return `GPU 0`, `GPU 1, 2 and 3`, or `GPU 0 and 63 others`."""
    if len(labels) > _MOST_LISTED:
        return f"GPU {labels[0]} and {len(labels) - 1} others"
    return f"GPU {listed(labels)}"


def percent(fraction: int) -> str:
    """Return a fraction in 1/10 000 as percent with one decimal, rounded down: 7562 is `75.6 %`, 7500 is `75 %`."""
    tenths = fraction * 1000 // FRACTION_ONE
    return f"{tenths // 10}.{tenths % 10} %" if tenths % 10 else f"{tenths // 10} %"


def foreign_lines(capacities: Iterable[DeviceCapacity]) -> list[str]:
    """Return the processes of others that hold most, largest first: pid, user, command, MiB and GPU."""
    holders = [
        (process.memory_mib, f"{_process(process)} holds {process.memory_mib} MiB on GPU {capacity.device.label}")
        for capacity in capacities
        for process in capacity.foreign
        if process.memory_mib
    ]
    return [line for _, line in sorted(holders, key=lambda holder: -holder[0])[:_MOST_LISTED]]


def alone_lines(capacities: Iterable[DeviceCapacity]) -> Iterator[str]:
    """Yield a line for the devices whose compute mode lets one process in."""
    alone: dict[tuple[str, bool], list[str]] = {}
    for capacity in capacities:
        if capacity.alone:
            mode = (capacity.device.compute_mode or "").upper()
            alone.setdefault((mode, capacity.taken), []).append(capacity.device.label)
    for (mode, taken), labels in alone.items():
        so = "and there is one, so nothing is placed here" if taken else "so one replica is placed here at most"
        yield f"{gpus(labels)}: {mode} lets one process in, {so}; `nvidia-smi -c DEFAULT` lets them share"


def _size(role: RoleRequest, context_mib: int) -> str:
    """Return what one replica needs, with `context_mib` beside its memory."""
    if role.memory is not None:
        return f"{role.memory.min_mib + context_mib} MiB"
    return number(role.devices, "whole GPU") if isinstance(role.devices, int) else "all whole GPUs"


def _process(process: DeviceProcess) -> str:
    owner = ", ".join(filter(None, (process.user, process.command)))
    return f"pid {process.pid}" + (f" ({owner})" if owner else "")
