"""What was measured before of the roles of a plan, beside what they get: lines for people, with the sums."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.footprint import ENOUGH_RUNS, MeasuredContext, MeasuredUse
from gpusched.model.plan import Replica, Request, RoleRequest
from gpusched.planner.explain import Decision
from gpusched.planner.plan_format import listed
from gpusched.units import number

__all__ = ["measured_lines"]

MostOf = Callable[[Request, str], int]
"""How many replicas of a role of a request fit, where each role is content with its minimum."""


def measured_lines(decision: Decision, most_of: MostOf) -> Iterator[str]:
    """Yield what is known of each role: what it used, what that is enough for, and where its context is from."""
    for role in decision.request.roles:
        one = next((replica for replica in decision.replicas if replica.role == role.name), None)
        if one is not None and one.device_uuid is not None:
            yield from _of_role(decision, role, role.measured or MeasuredUse(), one, most_of)
    contexts: dict[MeasuredContext, list[str]] = {}
    for role in decision.request.roles:
        if role.count and role.measured is not None and role.measured.context is not None:
            contexts.setdefault(role.measured.context, []).append(role.name)
    for context, names in contexts.items():
        yield f"{listed(names)}: context {context.mib} MiB, {context}"


def _of_role(decision: Decision, role: RoleRequest, use: MeasuredUse, one: Replica, most_of: MostOf) -> Iterator[str]:
    automatic = role.memory is not None and role.memory.first_mib is not None
    runs = f"{number(use.runs, 'run')}{f' with {use.framework}' if use.framework else ''} on {use.device}"
    lacked = "" if use.lacked_mib is None else f", and one ran out of memory at {use.lacked_mib}"
    if automatic and use.ask_mib is not None:
        yield f"{role.name}: auto is {use.ask_mib} MiB: {_sum(use)} ({runs}{lacked})"
    elif automatic:
        until = f"{_least(role)} MiB until then{lacked}"
        yield f"{role.name}: auto needs {ENOUGH_RUNS} runs, and there {_are(use.runs)}: {until}"
    elif use.ask_mib is None and use.runs:
        so_far = f"{role.name}: measured {use.peak_mib} MiB of {one.limit_mib} ({runs}{lacked})"
        yield f"{so_far}; {ENOUGH_RUNS} runs are needed to plan with it"
    elif use.ask_mib is not None:
        measured = f"{role.name}: measured {use.peak_mib} MiB of {one.limit_mib} ({runs}{lacked})"
        yield f"{measured}; {_advice(decision, role, use.ask_mib, one, most_of) or f'{use.ask_mib} MiB are enough'}"


def _advice(decision: Decision, role: RoleRequest, ask_mib: int, one: Replica, most_of: MostOf) -> str:
    """Return how many more would fit with what was measured; nothing for a role that takes what is left over."""
    if role.memory is None or role.memory.share is not None:
        return ""
    memory = replace(role.memory, min_mib=ask_mib, max_mib=None)
    roles = tuple(replace(each, memory=memory) if each is role else each for each in decision.request.roles)
    try:
        more = most_of(replace(decision.request, roles=roles), role.name) - role.count
    except UsageError:  # too many ways to try them all
        return ""
    size, room = ask_mib + one.context_mib, max(device.plannable_mib for device in decision.devices)
    each = f"with auto, {ask_mib} MiB limit + {one.context_mib} MiB context, {room} / {size} = {room // size} on a GPU"
    return f"{more} more {'fits' if more == 1 else 'fit'} {each}" if more > 0 else ""


def _sum(use: MeasuredUse) -> str:
    return f"at most {use.peak_mib} MiB were used, and 5 % are added, up to the next 64"


def _least(role: RoleRequest) -> int:
    return 0 if role.memory is None else role.memory.min_mib


def _are(runs: int) -> str:
    return "is 1" if runs == 1 else f"are {runs}"
