"""The plan of one command: whole devices, an amount of memory on one device, or a part of one device.

All that can be planned of a whole device is the command's (see `planner.whole_devices`). An amount is a
limit, with the context on top; a part is what is paid, with the context inside.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow, UsageError
from gpusched.model.device import Inventory
from gpusched.model.job import CommandRequest
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Replica, Request, RoleRequest
from gpusched.model.workload import Memory
from gpusched.planner.capacity import DeviceCapacity, device_capacities, excluded_devices
from gpusched.planner.explain import warnings
from gpusched.planner.feasibility import Rules
from gpusched.planner.holders import held_lines
from gpusched.planner.placement import device_plan, near_all, replica_on, threads_by_share
from gpusched.planner.plan_format import alone_lines, gpus, whole_line
from gpusched.planner.request import not_measured
from gpusched.planner.whole_devices import DeviceSlice, most_whole, whole_devices
from gpusched.units import FRACTION_ONE, fraction_of, number, portion

__all__ = ["ROLE", "command_fits", "could_use", "lacking_mib", "needed", "placed", "plan_command", "roomiest"]

ROLE: Final = "command"


def plan_command(
    need: CommandRequest, inventory: Inventory, leases: Sequence[Lease], rules: Rules, workload_name: str
) -> Plan:
    """Return the plan with one replica, `command.0`.

    Of whole devices, those with the most memory are taken, and the one with the least of them comes first, because one
    limit holds for each. A piece goes to a device that is no longer whole if one has room, and there to the one that it
    leaves the least on, so that whole devices stay whole. Raises NeverFits, NotNow, and UsageError for a need with
    none or several of the amounts.
    """
    unmeasured = need.first_mib == 0 and need.memory_mib is None
    if not unmeasured and sum(asked is not None for asked in (need.devices, need.memory_mib, need.fraction)) != 1:
        raise UsageError("a command needs either GPUs, or memory, or a part of a GPU", "give exactly one of them")
    if need.devices != 0 and not inventory.devices:
        raise NeverFits(f"this host, {inventory.host}, has no GPU", "to run without one: --num-gpus 0")
    capacities, context_mib = (
        device_capacities(inventory, leases, rules.headroom, rules.only),
        need.context_or(rules.context_mib),
    )
    excluded = (*rules.notes, *excluded_devices(inventory, rules.only))
    if unmeasured and capacities:
        raise not_measured("--memory")
    pieces = None if unmeasured else _pieces(need, capacities, context_mib)
    if pieces is None:
        raise _refusal(need, capacities, leases, context_mib, excluded)
    replica = _replica(need, pieces, inventory, context_mib)
    memory = Memory(min_mib=replica.limit_mib) if pieces else None
    used = {piece.capacity.device.uuid for piece in pieces}
    return Plan(
        inventory=inventory,
        request=Request(workload=workload_name, roles=(RoleRequest(name=ROLE, count=1, memory=memory),)),
        policy=rules.policy,
        devices=tuple(device_plan(capacity, *[replica] * (capacity.device.uuid in used)) for capacity in capacities),
        replicas=(replica,),
        why=(_why(need, replica, pieces), *_each(replica)),
        warnings=(*excluded, *warnings(inventory, capacities, (replica,))),
    )


def placed(need: CommandRequest, capacities: Sequence[DeviceCapacity], context_mib: int) -> Replica | None:
    """Return the replica as `plan_command` has it on these devices, but for its CPUs; None if it has no place now."""
    pieces = _pieces(need, capacities, need.context_or(context_mib))
    return None if pieces is None else _replica_on(need, pieces, need.context_or(context_mib))


def command_fits(need: CommandRequest, capacities: Sequence[DeviceCapacity], context_mib: int) -> bool:
    """Return whether the command has a place. Memory that becomes free never turns a yes into a no."""
    context_mib = need.context_or(context_mib)
    if need.devices is not None:
        return _most_whole(need, capacities, context_mib) >= need.devices
    return any(True for _ in _fitting(need, capacities, context_mib))


def roomiest(capacities: Iterable[DeviceCapacity]) -> tuple[DeviceCapacity, ...]:
    """Return of each kind of device the one with most room: a command on one device fits on these if it does on any.

    That holds also when all is over. A kind is all but the room that decides whether a command fits.
    """
    found: dict[tuple[object, ...], DeviceCapacity] = {}
    for one in capacities:
        kind = one.idle_mib, one.drivers_mib, one.is_whole, one.alone, one.taken
        if kind not in found or one.plannable_mib > found[kind].plannable_mib:
            found[kind] = one
    return tuple(found.values())


def lacking_mib(need: CommandRequest, capacity: DeviceCapacity, context_mib: int) -> int | None:
    """Return how much must become free of a device before the command has room there, 0 if it has; None: all of it."""
    if need.devices is not None or capacity.alone:
        return 0 if command_fits(need, [capacity], context_mib) else None
    return max(0, _size(need, capacity, need.context_or(context_mib)) - capacity.plannable_mib)


def could_use(need: CommandRequest, capacity: DeviceCapacity, context_mib: int) -> bool:
    """Return whether the command could be on this device if it were idle, alone or with further ones."""
    if need.devices is not None and need.devices > 1:
        return capacity.device.mig_index is None and capacity.idle_mib > _too_little(need, need.context_or(context_mib))
    one = replace(need, devices=1) if need.devices else need
    return need.devices != 0 and command_fits(one, (capacity.emptied,), context_mib)


def needed(need: CommandRequest, context_mib: int) -> str:
    """Return what the command needs: `2 whole GPUs`, `6594 MiB of one GPU`, `0.4 of one GPU`."""
    if need.memory_mib is not None:
        context = need.context_or(context_mib) * need.processes
        return f"{need.memory_mib + context} MiB of one GPU, {need.memory_mib} + {context} MiB of context"
    if need.fraction is not None:
        return f"{need.fraction / FRACTION_ONE:g} of one GPU"
    return number(need.devices or 0, "whole GPU")


def _pieces(
    need: CommandRequest, capacities: Sequence[DeviceCapacity], context_mib: int
) -> tuple[DeviceSlice, ...] | None:
    """Return what the command gets, or None if it does not fit. Where one process is let in, several have no place."""
    if need.devices is not None:
        return whole_devices(need.devices, _letting_in(need, capacities), _too_little(need, context_mib))
    fitting = list(_fitting(need, capacities, context_mib))
    if not fitting:
        return None
    return (min(fitting, key=lambda piece: (piece.capacity.is_whole, piece.capacity.plannable_mib - piece.share_mib)),)


def _fitting(need: CommandRequest, capacities: Sequence[DeviceCapacity], context_mib: int) -> Iterator[DeviceSlice]:
    """Yield the places on one device that a command has which asks for a part or an amount."""
    least = _too_little(need, context_mib)
    for capacity in _letting_in(need, capacities):
        share_mib = _size(need, capacity, context_mib)
        if least < share_mib <= capacity.plannable_mib and not capacity.taken:
            yield DeviceSlice(capacity, share_mib)


def _letting_in(need: CommandRequest, capacities: Sequence[DeviceCapacity]) -> list[DeviceCapacity]:
    """Return the devices whose compute mode lets all processes of the command in."""
    return [capacity for capacity in capacities if need.processes == 1 or not capacity.alone]


def _most_whole(need: CommandRequest, capacities: Sequence[DeviceCapacity], context_mib: int) -> int:
    """Return how many of the devices a command of as many processes could have as a whole."""
    return most_whole(_letting_in(need, capacities), _too_little(need, context_mib))


def _size(need: CommandRequest, capacity: DeviceCapacity, context_mib: int) -> int:
    """Return the share that the command would have of this device, in MiB.

    A part is of the idle device. The few MiB that the driver then takes as soon as a process computes come off the last
    part, or 0.5 and 0.5 would not fit.
    """
    if need.memory_mib is not None:
        return need.memory_mib + context_mib * need.processes
    wanted = portion(capacity.idle_mib, need.fraction or 0)
    return min(wanted, max(wanted - capacity.drivers_mib, capacity.plannable_mib))


def _too_little(need: CommandRequest, context_mib: int) -> int:
    """Return the largest share (MiB) that leaves one of the command's processes nothing beside its context."""
    return need.processes * (context_mib + 1) - 1


def _replica(need: CommandRequest, pieces: Sequence[DeviceSlice], inventory: Inventory, context_mib: int) -> Replica:
    """Return the one replica."""
    cpus, replica = inventory.cpus, _replica_on(need, pieces, context_mib)
    if not pieces:
        return replace(replica, cpus=cpus, threads=max(1, len(cpus)))
    threads = threads_by_share({piece.capacity.device.uuid: _part(need, piece) for piece in pieces}, inventory)
    return replace(replica, cpus=near_all(pieces, cpus), threads=max(1, threads // need.processes))


def _replica_on(need: CommandRequest, pieces: Sequence[DeviceSlice], context_mib: int) -> Replica:
    if not pieces:
        return Replica(name=f"{ROLE}.0", role=ROLE, rank=0)
    replica = replica_on(pieces, ROLE, 0, context_mib * need.processes)
    return replace(replica, whole=need.devices is not None, processes=need.processes)


def _part(need: CommandRequest, piece: DeviceSlice) -> int:
    """Return which part of the device the command has, in 1/10 000."""
    if need.devices is not None:
        return FRACTION_ONE
    return need.fraction or fraction_of(piece.share_mib, piece.capacity.idle_mib)


def _why(need: CommandRequest, replica: Replica, pieces: Sequence[DeviceSlice]) -> str:
    if not pieces:
        return f"{ROLE}: no GPU is asked for"
    labels = [piece.capacity.device.label for piece in pieces]
    parts = f"{replica.limit_mib} MiB limit + {replica.context_mib} MiB context"
    if need.devices is not None:
        return whole_line(ROLE, labels, replica)
    idle = pieces[0].capacity.idle_mib
    if need.fraction is not None:
        part = f"{need.fraction / FRACTION_ONE:g} of {idle} MiB = {replica.share_mib} MiB"
        return f"{ROLE}: {part} on {gpus(labels)}, {parts}"
    return f"{ROLE}: {replica.share_mib} of {idle} MiB on {gpus(labels)}, {parts}"


def _each(replica: Replica) -> Iterator[str]:
    """Yield the line for a command of several processes: what each of them may have."""
    if replica.processes > 1:
        context = replica.context_mib // replica.processes
        limit = replica.process_limit_mib
        yield f"{replica.processes} processes on a device at once: {limit} MiB limit + {context} MiB context for each"


def _refusal(
    need: CommandRequest,
    capacities: Sequence[DeviceCapacity],
    leases: Sequence[Lease],
    context_mib: int,
    excluded: Sequence[str],
) -> DoesNotFit:
    """Return NotNow, with who holds what, if the command would fit on idle devices; else NeverFits."""
    if not capacities:
        return NeverFits(f"no device takes a command: {'; '.join(excluded)}", "see gpusched status")
    idle = [capacity.emptied for capacity in capacities]
    extra = [*alone_lines(capacities), *excluded]
    if _pieces(need, idle, context_mib) is None:
        return NeverFits(_too_much(need, idle, context_mib), "; ".join([_less(need, idle, context_mib), *extra]))
    message = "; ".join([f"needs {needed(need, context_mib)}", *held_lines(capacities, leases)])
    return NotNow(message, "; ".join([_wait(need, capacities, context_mib), *extra]))


def _too_much(need: CommandRequest, idle: Sequence[DeviceCapacity], context_mib: int) -> str:
    """Return why not even idle devices are enough."""
    where = gpus([capacity.device.label for capacity in idle])
    largest = max(idle, key=lambda capacity: capacity.plannable_mib)
    most = f"{largest.plannable_mib} of {largest.total_mib} MiB on GPU {largest.device.label}"
    if need.fraction is not None:
        part = f"{need.fraction / FRACTION_ONE:g} of it is {portion(largest.plannable_mib, need.fraction)} MiB"
        alone = "the context alone takes" if need.processes == 1 else f"the contexts of {need.processes} processes take"
        context = f"{alone} {context_mib * need.processes} MiB"
        return f"the most that can be planned is {most}; {part}, and {context}"
    if need.memory_mib is not None:
        return f"needs {needed(need, context_mib)}; the most that can be planned on one device is {most}"
    number = _most_whole(need, idle, context_mib)
    mig = "; a process sees one MIG instance at the most" if any(b.device.mig_index is not None for b in idle) else ""
    return f"needs {needed(need, context_mib)}, and of {where} at most {number} can be had at once{mig}"


def _less(need: CommandRequest, idle: Sequence[DeviceCapacity], context_mib: int) -> str:
    """Return what would fit on idle devices."""
    largest = max(capacity.plannable_mib for capacity in idle)
    too_little = _too_little(need, context_mib)
    if largest <= too_little:
        return "take a machine with larger devices" + (", or fewer --processes" if need.processes > 1 else "")
    if need.devices is not None:
        number = _most_whole(need, idle, context_mib)
        return f"ask for --num-gpus {number} at most" if number else "ask for one process on a device"
    if need.memory_mib is not None:
        return f"ask for at most {largest - context_mib * need.processes} MiB"
    least = -(-(too_little + 1) * FRACTION_ONE // largest)
    return f"ask for at least {least / FRACTION_ONE:g} of it"


def _wait(need: CommandRequest, capacities: Sequence[DeviceCapacity], context_mib: int) -> str:
    """Return what a person can do now: wait, or ask for what is free."""
    if need.devices is not None and need.devices > 1 and (number := _most_whole(need, capacities, context_mib)):
        return f"wait, or ask for --num-gpus {number} at most"
    most = max((capacity.plannable_mib for capacity in capacities if capacity.now.most), default=0)
    free = most - context_mib * need.processes
    return f"wait, or ask for at most --memory {free}MiB" if free > 0 else "wait until memory is free"
