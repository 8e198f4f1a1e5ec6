"""What is planned with that was measured before: how much a context takes, and what `auto` asks for.

A submission comes in as a person asked for it, or as it was planned with once, and leaves with the figures of today.
Who has the daemon's store, or a link to it, gives them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from gpusched.errors import HostFault, NeverFits, NoDaemon, ProtocolError, UsageError
from gpusched.execution.footprint_key import footprint_keys
from gpusched.execution.plans import chosen_devices
from gpusched.model.device import Inventory
from gpusched.model.footprint import (
    ENOUGH_RUNS,
    Context,
    Footprint,
    MeasuredContext,
    MeasuredUse,
    Measurements,
    context_elsewhere,
    context_of,
    enlarged,
    kind_of,
    use_of,
)
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.plan import RoleRequest
from gpusched.model.workload import Memory
from gpusched.planner.capacity import device_capacities
from gpusched.planner.command import ROLE
from gpusched.settings import Settings
from gpusched.units import number

__all__ = ["Measured", "is_automatic", "measured_here", "with_measured"]

_PATIENCE_S: Final = 0.5
"""So long a plan waits for what it can do without. What is `auto` is waited for as long as any answer."""

Measured = Callable[[Sequence[str], Sequence[str], str | None], Measurements]
"""From keys, models of devices and the driver's version (None: any) to what was measured."""


def measured_here(submission: Submission, inventory: Inventory, settings: Settings) -> Submission:
    """Return the submission with what this user's daemon has measured; where none answers, with what is known anyway.

    Raises UsageError as with_measured does; where something is `auto`, NoDaemon if no daemon answers, and what
    asking one raises.
    """
    from gpusched.control.place import control_socket, listener

    if not is_automatic(submission) and listener(control_socket(settings)) is None:
        return with_measured(submission, inventory, settings, lambda *_: Measurements())

    def asked(keys: Sequence[str], devices: Sequence[str], driver: str | None) -> Measurements:
        from gpusched.control.client import Client
        from gpusched.control.usage_messages import FindMeasured
        from gpusched.control.usage_messages import Measured as Answered

        question = FindMeasured(keys=tuple(keys), devices=tuple(devices), driver=driver)
        with Client(settings) as client:
            answer = client.ask(question) if is_automatic(submission) else client.ask(question, _PATIENCE_S)
        return answer.found if isinstance(answer, Answered) else Measurements()

    try:
        return with_measured(submission, inventory, settings, asked)
    except (NoDaemon, HostFault, ProtocolError):  # such as an older one: what it knows is no need
        if is_automatic(submission):
            raise
        return with_measured(submission, inventory, settings, lambda *_: Measurements())


def is_automatic(submission: Submission) -> bool:
    """Return whether anything that is asked for is to be what was measured."""
    roles = submission.request.roles if submission.request else ()
    automatic = any(role.memory is not None and role.memory.first_mib is not None for role in roles)
    return automatic or (submission.command is not None and submission.command.first_mib is not None)


def with_measured(
    submission: Submission, inventory: Inventory, settings: Settings, measured: Measured, *, shown: bool = True
) -> Submission:
    """Return the submission with what is known of its roles on the models of those devices that it may use.

    Each role has its context, where one was measured, and what `auto` asks for. `shown`: it has, too, what people are
    shown of it. Raises UsageError for `auto` of which too little is known, and what `measured` raises.
    """
    models = {} if submission.only == () else _models(submission, inventory, settings)
    keys = footprint_keys(submission)
    if not models:
        return submission
    found = measured(tuple(keys.values()), tuple(models), inventory.driver_version)
    if submission.command is not None:
        about = _About(models, found, keys.get(ROLE), settings, submission.command.processes)
        return replace(submission, command=_command(submission.command, about, shown=shown))
    if submission.request is None:
        return submission
    roles = tuple(
        _role(role, _About(models, found, keys[role.name], settings), shown=shown) if role.on_device else role
        for role in submission.request.roles
    )
    return replace(submission, request=replace(submission.request, roles=roles))


def _models(submission: Submission, inventory: Inventory, settings: Settings) -> dict[str, int]:
    """Return the models of the devices that may be used, each with what can be planned of its largest, in MiB.

    None where the planner will refuse the devices that are named, and name the reason.
    """
    try:
        only = chosen_devices(submission, inventory)
    except (NeverFits, UsageError, HostFault):
        return {}
    models: dict[str, int] = {}
    for capacity in device_capacities(inventory, (), settings.headroom, only):
        if name := capacity.device.name:
            models[name] = max(capacity.idle_mib, models.get(name, 0))
    return dict(sorted(models.items()))


class _About:
    """What is known of one key on each of some models of devices. Where they differ, the largest counts.

    `models`: with what can be planned of the largest idle device of each, in MiB.
    """

    def __init__(
        self, models: Mapping[str, int], found: Measurements, key: str | None, settings: Settings, processes: int = 1
    ) -> None:
        rows = {} if key is None else found.footprints.get(key, {})
        every = sorted((row for some in rows.values() for row in some), key=lambda row: -row.ended)
        self._kind = kind_of(every)
        self.context = None
        if not settings.context_given:
            self.context = self._context([(model, found.contexts.get(model, ())) for model in models], settings)
        contexts_mib = processes * (settings.context_mib if self.context is None else self.context.mib)
        self._most = {model: mib - contexts_mib for model, mib in models.items()}
        self.use = _largest(rows, contexts_mib, self._most)

    def _context(self, contexts: Sequence[tuple[str, Sequence[Context]]], settings: Settings) -> MeasuredContext | None:
        usual_mib = settings.context_mib
        known = [
            context_of(model, some, *self._kind, usual_mib) or context_elsewhere(model, usual_mib)
            for model, some in contexts
        ]
        largest = max((one for one in known if one is not None), key=lambda one: one.mib, default=None)
        return None if largest is None or (None in known and largest.mib < usual_mib) else largest

    def shown(self) -> MeasuredUse | None:
        """Return it for people, None if nothing is known."""
        if self.use is None and self.context is None:
            return None
        return replace(self.use or MeasuredUse(), context=self.context)

    def asked_mib(self, first_mib: int, option: str) -> int:
        """Return what `auto` asks for. While too few runs are known it is `first_mib`, or more after a lack of memory.

        Raises UsageError if that is 0.
        """
        if self.use is not None and self.use.ask_mib is not None:
            return self.use.ask_mib
        if first_mib:
            return max(first_mib, self._after_a_lack_mib())
        runs = 0 if self.use is None else self.use.runs
        known = f": the most was {self.use.peak_mib} MiB" if self.use is not None and runs else ""
        raise UsageError(
            f"{option}: {number(runs, 'run')} of it on these devices {'is' if runs == 1 else 'are'} measured, and"
            f" {ENOUGH_RUNS} are needed{known}",
            f"name what to ask for until then, as in auto:4GiB; {ENOUGH_RUNS} that succeed are enough",
        )

    def _after_a_lack_mib(self) -> int:
        use = self.use
        if use is None or use.lacked_mib is None:
            return 0
        return min(enlarged(use.lacked_mib), self._most.get(use.device, 0))


def _largest(
    rows: Mapping[str, tuple[Footprint, ...]], contexts_mib: int, most: Mapping[str, int]
) -> MeasuredUse | None:
    known = (use_of(model, some, contexts_mib, most.get(model, 0)) for model, some in rows.items())
    uses = [use for use in known if use is not None]
    return max(uses, key=lambda use: (use.ask_mib or 0, max(use.peak_mib, use.lacked_mib or 0)), default=None)


def _command(command: CommandRequest, about: _About, *, shown: bool) -> CommandRequest:
    found = replace(
        command,
        context_mib=None if about.context is None else about.context.mib,
        measured=about.shown() if shown else None,
    )
    if command.first_mib is None:
        return found
    return replace(found, memory_mib=about.asked_mib(command.first_mib, "--memory auto"))


def _role(role: RoleRequest, about: _About, *, shown: bool) -> RoleRequest:
    found = replace(
        role,
        context_mib=None if about.context is None else about.context.mib,
        measured=about.shown() if shown else None,
    )
    memory = role.memory
    if memory is None or memory.first_mib is None:
        return found
    return replace(found, memory=_asked(memory, about.asked_mib(memory.first_mib, f"{role.name}: memory auto")))


def _asked(memory: Memory, mib: int) -> Memory:
    return replace(memory, min_mib=mib if memory.max_mib is None else min(mib, memory.max_mib))
