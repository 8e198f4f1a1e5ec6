"""From a workload and what a person typed beside it to a request; every number is checked here, once."""

from typing import Final

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.workload import Memory, Role, Workload, memory_asked
from gpusched.units import parse_count

__all__ = ["MOST_REPLICAS", "counted_role", "not_measured", "request_for"]

MOST_REPLICAS: Final = 100_000
"""More replicas of one role than this is a slip of the finger, not a wish."""


def request_for(
    workload: Workload,
    procs: str | None = None,
    learner_memory: str | None = None,
    actor_memory: str | None = None,
    least_procs: int = 1,
    *,
    fixed: bool = False,
) -> Request:
    """Return what `workload` asks for, with the counted role's number and both memories replaced by what was typed.

    `procs` is a number from `least_procs` on, or `max`: then the planner finds it (see `plan`, maximise). The amounts
    replace a role's minimum, and its share if it asked for one. `fixed`: the workload's own numbers stand, too, as if
    they had been typed. Raises UsageError.
    """
    roles = {role.name: _asked(role) for role in workload.roles}
    if procs is not None and procs != "max":
        name = counted_role(workload)
        roles[name] = replace(roles[name], count=_procs(procs, least_procs))
    if procs is None and not fixed:
        roles = {name: replace(role, usual=_is_counted(workload, name)) for name, role in roles.items()}
    if learner_memory is not None:
        name = _learner(workload)
        roles[name] = _with_memory(roles[name], learner_memory, "--learner-memory")
    if actor_memory is not None:
        name = counted_role(workload)
        roles[name] = _with_memory(roles[name], actor_memory, "--actor-memory")
    return Request(workload=workload.name, roles=tuple(roles.values()))


def not_measured(what: str) -> UsageError:
    """Return the error for memory `auto` of which it is not known what was measured."""
    return UsageError(f"{what}: auto is what was measured here, and nothing was", "name an amount, or auto:4GiB")


def counted_role(workload: Workload) -> str:
    """Return the role that `--procs` counts: `actor`, else the only one that is not the leader. Raises UsageError."""
    names = [role.name for role in workload.roles]
    if "actor" in names:
        return "actor"
    others = [name for name in names if name != workload.leader]
    if len(others) == 1:
        return others[0]
    if len(names) == 1:
        hint = "leave out what is for actors: --procs, --actor-memory, --listen"
        raise UsageError(f"workload {workload.name} has no actors: its one role, {names[0]}, leads it", hint)
    roles = f"its roles are {', '.join(names)}" + (f", led by {workload.leader}" if workload.leader else "")
    hint = "write the numbers and the memory into the workload file, or name one role `actor`"
    raise UsageError(
        f"workload {workload.name}: it is not clear which role --procs and --actor-memory mean; {roles}", hint
    )


def _is_counted(workload: Workload, name: str) -> bool:
    """Return whether `--procs` would count this role."""
    try:
        return name != workload.leader and counted_role(workload) == name
    except UsageError:
        return False


def _learner(workload: Workload) -> str:
    names = [role.name for role in workload.roles]
    for name in ("learner", workload.leader):
        if name in names:
            return name
    problem = f"--learner-memory needs a role `learner` or a leader, and its roles are {', '.join(names)}"
    raise UsageError(f"workload {workload.name}: {problem}", "write the memory into the workload file")


def _with_memory(role: RoleRequest, text: str, option: str) -> RoleRequest:
    if role.devices is not None:
        problem = f"{option}: {role.name} has whole devices, and all that can be planned of them"
        raise UsageError(problem, "leave it out, or choose devices with --gpus")
    least, first = memory_asked(text, option)
    return with_least(role, least, first)


def with_least(role: RoleRequest, least_mib: int, first_mib: int | None = None) -> RoleRequest:
    """Return a role that asks for another least amount, in the place of its minimum and share; see Memory.

    A share of 0: the amount alone counts, and the role is still one that takes what is left over.
    """
    share = None if role.memory is None or role.memory.share is None else 0
    return replace(role, memory=Memory(min_mib=least_mib, share=share, first_mib=first_mib))


def _procs(text: str, least: int) -> int:
    hint = f"give a whole number from {least} to {MOST_REPLICAS}, or max"
    try:
        number = parse_count(text, "--procs")
    except UsageError as error:
        raise UsageError(error.message, hint) from None
    if not least <= number <= MOST_REPLICAS:
        raise UsageError(f"--procs: {text!r} is {'no process' if number == 0 else 'too many'}", hint)
    return number


def _asked(role: Role) -> RoleRequest:
    return RoleRequest(
        name=role.name,
        count=role.count,
        memory=role.memory,
        devices=role.devices,
        threads=role.threads,
        least_threads=role.least_threads,
        low_cpu=role.low_cpu,
    )
