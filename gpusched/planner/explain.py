"""Why a plan is what it is, in numbers that add up, and what the person should know about the host."""

from collections.abc import Iterator, Sequence

import msgspec

from gpusched.model.device import Inventory
from gpusched.model.plan import DevicePlan, Replica, Request, RoleRequest
from gpusched.model.workload import Memory
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.feasibility import Rules
from gpusched.planner.plan_format import alone_lines, foreign_lines, gpus, listed, percent, whole_line
from gpusched.planner.problem import PackingProblem, SearchLimitExceeded
from gpusched.planner.solve import most_counted
from gpusched.units import fraction_of, number, plural

__all__ = ["Decision", "fewer_than_usual", "warnings", "why", "why_without_devices"]

_MOST_LINES = 8


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided: the narrowed problem, the least limit (MiB), and where that put everything.

    `everything`: the roles that asked for all devices. `enough`: how many devices policy pack would use; None: that is
    of no interest.
    """

    request: Request
    rules: Rules
    problem: PackingProblem
    limit_mib: int
    devices: tuple[DevicePlan, ...]
    replicas: tuple[Replica, ...]
    maximised: str | None
    everything: frozenset[str]
    enough: int | None


def why(decision: Decision) -> tuple[str, ...]:
    """Return the reasons for the counts and limits, most telling first."""
    return (
        *_maximised(decision),
        *_whole(decision),
        *_gave_way(decision),
        *_policy(decision),
        *_shares(decision),
        *_elastic(decision),
        *_proof(decision),
    )


def why_without_devices(
    request: Request, inventory: Inventory, maximised: str | None, *, hidden: bool
) -> tuple[str, ...]:
    """Return the reasons for a plan on a host without a GPU, or with none that may be used (`hidden`)."""
    everything = sum(role.count for role in request.roles)
    processes = number(everything, "process")
    share = "shares" if everything == 1 else "share"
    none = f"no GPU of {inventory.host} may be used" if hidden else f"{inventory.host} has no GPU"
    lines = [f"{none}: {processes} {share} its {number(len(inventory.cpus), 'CPU')}, without limits"]
    if maximised is not None:
        count = next(role.count for role in request.roles if role.name == maximised)
        lines.append(_one_for_each_cpu(count, maximised))
    return tuple(lines)


def _one_for_each_cpu(count: int, role: str) -> str:
    return f"{number(count, role)}: one process for each CPU, the other roles' processes counted, at least 1"


def fewer_than_usual(usual: Request, request: Request) -> Iterator[str]:
    """Yield a line for each role of which there are fewer than the workload's own number, for want of a device."""
    for before, role in zip(usual.roles, request.roles, strict=True):
        if role.count < before.count:
            few = f"{role.count} of the usual {number(before.count, role.name)}"
            yield f"{few}: without a GPU one for each CPU; another number: --procs"


def warnings(
    inventory: Inventory, capacities: Sequence[DeviceCapacity], replicas: Sequence[Replica]
) -> tuple[str, ...]:
    """Return what the person should know: driver, CPUs, compute mode, persistence mode, memory that could be freed."""
    lines = [inventory.problem] if inventory.problem else []
    if 0 < len(inventory.cpus) < len(replicas):
        lines.append(
            f"{len(replicas)} processes share {number(len(inventory.cpus), 'CPU')} and will take turns; fewer: --procs"
        )
    lines += alone_lines(capacities)
    off = [capacity.device.label for capacity in capacities if capacity.device.persistence_mode is False]
    if off:
        lines.append(
            f"{gpus(off)}: persistence mode is off, so that starting is slower; `nvidia-smi -pm 1` turns it on"
        )
    lines += [f"{line}, which could be freed" for line in foreign_lines(capacities)]
    for capacity in capacities:
        if capacity.unseen_mib > capacity.drivers_mib:
            unseen = f"{capacity.unseen_mib} MiB are held by processes that cannot be seen from here"
            lines.append(f"GPU {capacity.device.label}: {unseen}")
    return tuple(lines)


def _maximised(decision: Decision) -> Iterator[str]:
    for role in decision.request.roles:
        if role.name == decision.maximised and not role.on_device:
            yield _one_for_each_cpu(role.count, role.name)
        elif role.name == decision.maximised:
            yield f"{number(role.count, role.name)}: the most that fit when every role is content with its minimum"


def _whole(decision: Decision) -> Iterator[str]:
    """One line for each replica with devices to itself, and one for those that asked for all there are."""
    label_of = {device.uuid: device.label for device in decision.devices}
    mine = [replica for replica in decision.replicas if replica.whole]
    for replica in mine[:_MOST_LINES]:
        uuids = [replica.device_uuid, *(share.device_uuid for share in replica.further)]
        yield whole_line(replica.name, [label_of[uuid] for uuid in uuids if uuid is not None], replica)
    if len(mine) > _MOST_LINES:
        yield f"{len(mine) - _MOST_LINES} more replicas have whole devices"
    if decision.everything:
        beside = " and leave the others a place" if any(need.count for need in decision.problem.needs) else ""
        several = sum(role.count for role in decision.request.roles if role.name in decision.everything) > 1
        each = ", the same number for each" if several else ""
        yield f"{listed(sorted(decision.everything))} asked for all devices: as many as are whole{beside}{each}"


def _gave_way(decision: Decision) -> Iterator[str]:
    for role, need in zip(decision.request.roles, decision.problem.needs, strict=True):
        if role.count and role.memory is not None and role.memory.share and need.share == 0:
            wish = f"{percent(role.memory.share)} of a device"
            yield f"{role.name} gives way: with {wish} for it not everything fits, so it is sure of its minimum only"


def _policy(decision: Decision) -> Iterator[str]:
    used = sum(bool(device.replicas) for device in decision.devices)
    if not used:
        return
    policy, fullest = decision.rules.policy, max(len(device.replicas) for device in decision.devices)
    of, are = f"{used} of {number(len(decision.devices), 'device')}", "is" if used == 1 else "are"
    if policy == "pack":
        chosen = ", the fullest with room" if used < len(decision.devices) else ""
        yield f"policy pack: {of} {are} enough{chosen}"
    if policy == "spread":
        because = ", because with fewer they do not all fit" if fullest > 1 else ""
        cost = f"; {of} {are} used, and policy pack would use {decision.enough}" if used != decision.enough else ""
        yield f"policy spread: at most {fullest} on a device{because}{cost}"
    if policy == "exclusive":
        yield f"policy exclusive: one replica on a device, {of} {are} used"


def _shares(decision: Decision) -> Iterator[str]:
    """One line for each device with a replica that asked for a share."""
    asked = {role.name for role in decision.request.roles if _takes_rest(decision, role)}
    maximum = {role.name: role.memory.max_mib for role in decision.request.roles if role.memory is not None}
    homes: dict[str, list[Replica]] = {}
    for replica in decision.replicas:
        if replica.role in asked and replica.device_uuid is not None:
            homes.setdefault(replica.device_uuid, []).append(replica)
    devices = [device for device in decision.devices if device.uuid in homes]
    for device in devices[:_MOST_LINES]:
        here = homes[device.uuid]
        takes = ", ".join(_taking(replica, device, maximum[replica.role]) for replica in here[:_MOST_LINES])
        others = len(device.replicas) - len(here)
        fit = (
            f"{number(others, _other_role(decision, asked))} fit{'s' if others == 1 else ''}"
            if others
            else "nothing is"
        )
        yield f"GPU {device.label}: {takes}, {fit} beside {'it' if len(here) == 1 else 'them'}"
    if len(devices) > _MOST_LINES:
        yield f"{len(devices) - _MOST_LINES} more devices are shared in this way"


def _taking(replica: Replica, device: DevicePlan, maximum: int | None) -> str:
    part = percent(fraction_of(replica.limit_mib, device.total_mib))
    most = ", its maximum" if replica.limit_mib == maximum else ""
    return f"{replica.name} takes {replica.limit_mib} MiB ({part} of {device.total_mib}{most})"


def _other_role(decision: Decision, shares: set[str]) -> str:
    names = {
        replica.role
        for replica in decision.replicas
        if replica.role not in shares and replica.device_uuid and not replica.whole
    }
    return names.pop() if len(names) == 1 else "replica"


def _elastic(decision: Decision) -> Iterator[str]:
    """One line for each role without a share: where its limit comes from, or that it needs none."""
    for role in decision.request.roles:
        if role.count and not role.on_device:
            yield f"{number(role.count, role.name)}: no memory is asked for, so no device is given"
        elif role.count and role.memory is not None and not _takes_rest(decision, role):
            yield _limit_line(decision, role, role.memory)


def _takes_rest(decision: Decision, role: RoleRequest) -> bool:
    """Return whether the role gets what is left over on its device."""
    return decision.rules.grow and role.memory is not None and role.memory.share is not None


def _limit_line(decision: Decision, role: RoleRequest, memory: Memory) -> str:
    one = next(replica for replica in decision.replicas if replica.role == role.name)
    limit, context, share = one.limit_mib, one.context_mib, one.share_mib
    parts = f"{limit} MiB limit + {context} MiB context"
    name, each = (role.name, "") if role.count == 1 else (plural(role.name), " each")
    if not decision.rules.grow:
        return f"{name}: {share} MiB{each}, {parts}: the minimum, as this job does not grow"
    if limit == memory.max_mib:
        return f"{name}: {share} MiB{each}, {parts}: the maximum"
    if limit > decision.limit_mib:
        return f"{name}: {share} MiB{each}, {parts}: more than the others get, because that is the minimum"
    tight = [
        device
        for device in decision.devices
        if device.replicas
        and all(name.startswith(f"{role.name}.") for name in device.replicas)
        and device.plannable_mib // len(device.replicas) == share
    ]
    if not tight:
        return f"{name}: {share} MiB{each}, {parts}"
    fewest = (tight[0].plannable_mib, len(tight[0].replicas))
    labels = [device.label for device in tight if (device.plannable_mib, len(device.replicas)) == fewest]
    return f"{name}: {fewest[0]} / {fewest[1]} = {share} MiB{each} on {gpus(labels)}, {parts}"


def _proof(decision: Decision) -> Iterator[str]:
    """Return what one MiB more would do; several elastic roles of different sizes would make it no plain sentence."""
    roles = decision.request.roles
    elastic = [role for role in roles if role.count and role.memory and role.memory.share is None]
    if len(elastic) == 1 and decision.rules.grow:
        role, more = elastic[0], decision.limit_mib + 1
        if role.memory and role.memory.max_mib is not None and more > role.memory.max_mib:
            return
        try:
            fitting = most_counted(decision.problem, more)
        except SearchLimitExceeded:  # the plan stands without it
            return
        all_of_them = number(role.count, role.name)
        few = f"only {fitting}" if fitting else "none"
        yield f"no {role.name} can have more: with {more} MiB each {few} of {all_of_them} would fit"
