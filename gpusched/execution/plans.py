"""From a submission to its plan, and the cheaper question whether it has one now. Pure: the host comes as a snapshot.

It owns which of the planner's two ways a submission takes, a workload's roles or one command.
"""

import math
from collections.abc import Hashable, Sequence

from msgspec.structs import replace

from gpusched.errors import NeverFits
from gpusched.model.device import Inventory
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Replica, Request, RoleRequest
from gpusched.planner import Rules, plan, restriction, select_devices
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.command import command_fits, could_use, lacking_mib, placed, plan_command
from gpusched.planner.feasibility import request_fits, with_count
from gpusched.planner.foreign import without_ignored
from gpusched.planner.policies import policy_and_growth
from gpusched.probe.base import require_usable
from gpusched.settings import Settings

__all__ = [
    "chosen_devices",
    "could_be_on",
    "is_feasible",
    "mib_lacking",
    "need_of",
    "needs_devices",
    "on_single_devices",
    "plan_for",
    "replicas_for",
    "request_of",
    "restriction_lines",
    "ways",
]


def plan_for(
    submission: Submission,
    inventory: Inventory,
    leases: Sequence[Lease],
    settings: Settings,
    avoid: frozenset[str] = frozenset(),
) -> Plan:
    """Return the plan of `submission` beside `leases`, on none of the devices `avoid` (uuids).

    Raises NeverFits, NotNow, UsageError for a device that is not here or an unknown policy, and HostFault for a driver
    that does not work.
    """
    notes = restriction_lines(submission, inventory)
    if submission.only == ():
        inventory = replace(inventory, devices=())
    only = chosen_devices(submission, inventory)
    if only is not None and not only and submission.command is None:  # the variable of the user names no device
        inventory = replace(inventory, devices=())
    if submission.ignore_foreign is not None and inventory.devices:
        inventory, ignored = without_ignored(inventory, leases, submission.ignore_foreign, only)
        notes += ignored
    if avoid:
        every = frozenset(device.uuid for device in inventory.devices) if only is None else only
        only = every - avoid
    policy, grow = policy_and_growth(submission.policy, submission.grow)
    rules = Rules(
        policy=policy,
        grow=grow,
        context_mib=settings.context_mib,
        headroom=settings.headroom,
        only=only,
        notes=notes,
    )
    if submission.command is not None:
        return plan_command(submission.command, inventory, leases, rules, submission.workload.name)
    return plan(request_of(submission), inventory, leases, rules, submission.maximise)


def replicas_for(
    submission: Submission,
    inventory: Inventory,
    leases: Sequence[Lease],
    settings: Settings,
    capacities: Sequence[DeviceCapacity],
    avoid: frozenset[str],
) -> tuple[tuple[Replica, ...], Plan | None] | None:
    """Return the replicas that `plan_for` would place, or None if it cannot. Raises as that does.

    `capacities` are of the devices that the job may use, without `avoid`. Those of a command have no CPUs yet, and take
    a small part of the time of its plan; those of roles come with the plan that they are of.
    """
    if submission.command is not None:
        replica = placed(submission.command, capacities, settings.context_mib)
        return None if replica is None else ((replica,), None)
    if not is_feasible(submission, capacities, settings):
        return None
    plan = plan_for(submission, inventory, leases, settings, avoid)
    return plan.replicas, plan


def is_feasible(submission: Submission, capacities: Sequence[DeviceCapacity], settings: Settings) -> bool:
    """Return whether `plan_for` would find a plan on these devices, which are those it may use.

    Memory that becomes free never turns a yes into a no. Raises UsageError as `plan_for` does.
    """
    if submission.command is not None:
        return command_fits(submission.command, capacities, settings.context_mib)
    policy, _ = policy_and_growth(submission.policy, submission.grow)
    return request_fits(request_of(submission), capacities, settings.context_mib, policy)


def on_single_devices(submission: Submission) -> tuple[Submission, int | None]:
    """Return what the job asks of each single device, and of how many; None if its parts have to be seen together.

    Of devices that the job could be on (`could_be_on`), it fits where the first is feasible on that many of them alone.
    """
    if submission.command is not None:
        number = submission.command.devices or 1
        return replace(submission, command=replace(submission.command, devices=1)) if number > 1 else submission, number
    alone, request = _alone_on_devices(submission), submission.request
    if alone is None or request is None:
        return submission, None
    if alone.devices is None or alone.devices == 1:
        return submission, 1
    roles = tuple(replace(role, devices=1) if role is alone else role for role in request.roles)
    return replace(submission, request=replace(request, roles=roles)), int(alone.devices)


def _alone_on_devices(submission: Submission) -> RoleRequest | None:
    """Return the role of the only replica that needs a device, or a number of them; None where there are others."""
    if submission.request is None or submission.maximise is not None:
        return None
    roles = [role for role in submission.request.roles if role.on_device and role.count]
    return roles[0] if len(roles) == 1 and roles[0].count == 1 and roles[0].devices != "all" else None


def mib_lacking(submission: Submission, capacity: DeviceCapacity, settings: Settings) -> int | None:
    """Return how many MiB of a device must become free for a job that is on single devices; None: all that it has."""
    if submission.command is not None:
        single = replace(submission.command, devices=1) if submission.command.devices else submission.command
        return lacking_mib(single, capacity, settings.context_mib)
    alone = _alone_on_devices(submission)
    if alone is None or alone.memory is None or capacity.alone:
        return 0 if is_feasible(on_single_devices(submission)[0], [capacity], settings) else None
    return max(0, alone.memory.min_mib + alone.context_or(settings.context_mib) - capacity.plannable_mib)


def could_be_on(submission: Submission, capacity: DeviceCapacity, settings: Settings) -> bool:
    """Return whether any part of the job could be on this device if the device were idle."""
    if submission.command is not None:
        return could_use(submission.command, capacity, settings.context_mib)
    idle = capacity.idle_mib
    return any(
        role.memory.min_mib + role.context_or(settings.context_mib) <= idle
        if role.memory is not None
        else role.on_device and could_use(_command_like(role), capacity, settings.context_mib)
        for role in request_of(submission).roles
        if role.count
    )


def chosen_devices(submission: Submission, inventory: Inventory) -> frozenset[str] | None:
    """Return the uuids of the devices that the job may use, None for all.

    Raises NeverFits if none of them is here any more, UsageError for a name of no device, HostFault for a driver that
    does not work.
    """
    if not needs_devices(submission):
        return None
    require_usable(inventory)
    if submission.only is None:
        return select_devices(inventory, submission.gpus, submission.exclude_gpus, submission.visible)
    only = frozenset(submission.only)
    if only.isdisjoint(device.uuid for device in inventory.devices):
        raise NeverFits(f"none of its devices is here: {', '.join(submission.only)}", "see gpusched status")
    return only


def restriction_lines(submission: Submission, inventory: Inventory) -> tuple[str, ...]:
    """Return what a person's CUDA_VISIBLE_DEVICES leaves the job, in one line or none. Raises UsageError."""
    if submission.visible is None or not inventory.devices or not _asks_for_devices(submission):
        return ()
    return tuple(filter(None, (restriction(inventory, submission.visible).line,)))


def needs_devices(submission: Submission) -> bool:
    """Return whether the job asks for anything of a device, and may use one."""
    return submission.only != () and _asks_for_devices(submission)


def _asks_for_devices(submission: Submission) -> bool:
    if submission.command is not None:
        return submission.command.devices != 0
    if submission.request is None:  # `request_of` refuses it, with an error of its own
        return True
    return any(role.on_device and role.count for role in request_of(submission).roles)


def request_of(submission: Submission) -> Request:
    """Return the roles that are asked for; of one that is to be as many as fit, one at least."""
    request = submission.request
    if request is None:
        raise NeverFits(f"{submission.workload.name}: nothing is asked for", "submit it again")
    return request if submission.maximise is None else with_count(request, submission.maximise, 1)


def _command_like(role: RoleRequest) -> CommandRequest:
    """Return the need of a command that asks for the whole devices of one replica; of all devices, one at least."""
    return CommandRequest(devices=role.devices if isinstance(role.devices, int) else 1)


def need_of(submission: Submission) -> Hashable:
    """Return all that decides whether and where a job fits: jobs with equal needs get equal answers."""
    return (
        submission.machine,
        submission.request,
        submission.command,
        submission.maximise,
        submission.policy,
        submission.grow,
        submission.gpus,
        submission.exclude_gpus,
        submission.visible,
        submission.only,
        submission.ignore_foreign,
    )


def ways(submission: Submission) -> int:
    """Return what `is_feasible` costs: in how many ways the roles but the largest can be on one device."""
    if submission.command is not None:
        return 1
    counts = sorted(role.count + 1 for role in request_of(submission).roles if role.memory is not None and role.count)
    return math.prod(counts[:-1])
