"""What a waiting job could have asked for to start now: less, other devices, or a time limit short enough to pass."""

from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.plan import RoleRequest
from gpusched.planner import counted_role
from gpusched.planner.feasibility import with_count
from gpusched.planner.request import with_least
from gpusched.units import FRACTION_ONE

__all__ = ["alternatives"]

_STEP_MIB: Final = 64
_STEP_FRACTION: Final = FRACTION_ONE // 100
_MINUTE_S: Final = 60
_LONGEST_MIN: Final = 24 * 60

Starts = Callable[[Submission], bool]
Found = TypeVar("Found")
Answer = Generator[None, None, Found]
"""An answer that comes after some questions: it yields None after each of them."""


def alternatives(asked: Submission, starts: Starts) -> Iterator[str | None]:
    """Yield, after each question, None or an option that would let the job start now, nearest to what it asks.

    `starts` returns whether it would. Options are as they are typed; each is for itself.
    """
    if asked.command is not None:
        yield (yield from _smaller_command(asked, asked.command, starts))
    elif asked.maximise is None:
        yield (yield from _fewer(asked, starts))
        yield (yield from _less_memory(asked, starts))
    yield _elsewhere(asked, starts)
    yield (yield from _sooner(asked, starts))


def _smaller_command(asked: Submission, command: CommandRequest, starts: Starts) -> Answer[str | None]:
    """Return the largest smaller need that has a place."""

    def as_need(field: str, step: int) -> Callable[[int], bool]:
        return lambda number: starts(replace(asked, command=replace(command, **{field: number * step})))

    if command.devices is not None:
        number = yield from _most(as_need("devices", 1), command.devices - 1)
        return f"--num-gpus {number}" if number else None
    if command.memory_mib is not None:
        number = yield from _most(as_need("memory_mib", _STEP_MIB), (command.memory_mib - 1) // _STEP_MIB)
        return f"--memory {number * _STEP_MIB}MiB" if number else None
    number = yield from _most(as_need("fraction", _STEP_FRACTION), ((command.fraction or 0) - 1) // _STEP_FRACTION)
    return f"--fraction {number / 100:g}" if number else None


def _fewer(asked: Submission, starts: Starts) -> Answer[str | None]:
    """Return the largest number of actors that have a place."""
    request, role = asked.request, _counted(asked)
    if request is None or role is None:
        return None

    def as_many(few: int) -> bool:
        return starts(replace(asked, request=with_count(request, role.name, few)))

    number = yield from _most(as_many, role.count - 1)
    return f"--procs {number}" if number else None


def _less_memory(asked: Submission, starts: Starts) -> Answer[str | None]:
    """Return the most memory with which all actors have a place."""
    request, role = asked.request, _counted(asked)
    if request is None or role is None or role.memory is None:
        return None

    def as_much(steps: int) -> bool:
        less = with_least(role, steps * _STEP_MIB)
        roles = tuple(less if one.name == role.name else one for one in request.roles)
        return starts(replace(asked, request=replace(request, roles=roles)))

    number = yield from _most(as_much, (role.memory.min_mib - 1) // _STEP_MIB)
    return f"--actor-memory {number * _STEP_MIB}MiB" if number else None


def _counted(asked: Submission) -> RoleRequest | None:
    """Return the role that `--procs` and `--actor-memory` are about."""
    try:
        name = counted_role(asked.workload)
    except UsageError:
        return None
    roles = asked.request.roles if asked.request else ()
    return next((role for role in roles if role.name == name), None)


def _elsewhere(asked: Submission, starts: Starts) -> str | None:
    """Return the restriction without which the job has a place."""
    typed = {"--gpus": asked.gpus, "--exclude-gpus": asked.exclude_gpus}
    options = [f"{option} {devices}" for option, devices in typed.items() if devices]
    restrictions = " and ".join([*options, *([asked.visible.variable] if asked.visible else [])])
    free = replace(asked, gpus=None, exclude_gpus=None, visible=None, only=None)
    return f"without {restrictions}" if restrictions and asked.only != () and starts(free) else None


def _sooner(asked: Submission, starts: Starts) -> Answer[str | None]:
    """Return the longest time limit with which the job may pass those before it."""
    most = _LONGEST_MIN if asked.time_limit_s is None else min(_LONGEST_MIN, int(asked.time_limit_s - 1) // _MINUTE_S)
    number = yield from _most(lambda minutes: starts(replace(asked, time_limit_s=float(minutes * _MINUTE_S))), most)
    hours, minutes = divmod(number, 60)
    return f"--time-limit {f'{hours}h' * bool(hours)}{f'{minutes}m' * bool(minutes)}" if number else None


def _most(holds: Callable[[int], bool], top: int) -> Answer[int]:
    """Return the largest number from 1 to `top` that holds, 0 if there is none; the least may be too little."""
    low, high = 1, max(0, top)
    while low <= high and not holds(low):
        low *= 2
        yield None
    if low > high:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
        yield None
    return low
