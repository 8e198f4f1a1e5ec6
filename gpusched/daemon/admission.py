"""A submission becomes a job of the queue, or is refused with the reason: it is wrong, or it can never fit."""

import itertools
import os
import re
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from gpusched.control.messages import Rerun
from gpusched.daemon.selection import selected
from gpusched.daemon.state import DaemonState
from gpusched.errors import NeverFits, NotFound, UsageError
from gpusched.execution.directory import claim_directory
from gpusched.execution.expand import require_short_socket
from gpusched.execution.measured import with_measured
from gpusched.execution.network import check_network
from gpusched.execution.plans import need_of, plan_for
from gpusched.model.device import Inventory
from gpusched.model.job import CommandRequest, QueueChange, Submission
from gpusched.model.selection import Selection
from gpusched.model.status import ENDED, JobState
from gpusched.planner import number_of_devices, restriction, select_devices
from gpusched.planner.request import MOST_REPLICAS
from gpusched.storage.job import Job

__all__ = ["Admission", "has_same_turn"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEPT_ANSWERS: Final = 64
_KEPT_TOKENS: Final = 1000
_NUMBER: Final = re.compile(r"\.\d+")
_LONGEST_STEM: Final = 180  # of a name, so that a number has room
_ENDED_TOKENS: Final = 200  # of jobs that ended, at the start: who lost an answer asks again within seconds


class Admission:
    """Takes in submissions. What fits an idle host is found out once for all that ask for the same."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._fitting: dict[Hashable, tuple[Inventory, Submission]] = {}
        self._numbers: dict[str, int] = {}
        self._copies: dict[str, int] = {}
        jobs = (*reversed(state.jobs.ended(_ENDED_TOKENS)), *state.jobs.live.values())
        self._tokens = {job.submission.token: job.id for job in jobs if job.submission and job.submission.token}

    def known(self, token: str) -> str | None:
        """Return the id of the job that was added to the table under the same token, None if there is none."""
        job_id = self._tokens.get(token)
        return job_id if job_id in self._state.jobs.known else None

    def accept(self, submission: Submission, host: Inventory) -> str:
        """Return the id of the job that was added to the table. `host` is any reading of this host.

        Raises UsageError, NotFound for a job that it is to follow, NeverFits, HostFault.
        """
        _check(submission)
        submission = _sound(self._with_ids(submission))
        if submission.command is None:
            require_short_socket(submission.workload, self._state.settings)
        submission = self.named(self._resolved(self._measured(_absolute(submission), host), host))
        name = submission.workload.name
        after = max(self._numbers.get(name, 0), self._state.jobs.store.last_number(name))
        directory = claim_directory(self._state.settings.state_dir, name, after=after)
        self._numbers[name] = int(directory.path.name.rpartition("-")[2])
        job = Job(
            id=directory.path.name,
            run_dir=str(directory.path),
            created=round(time.time(), 3),
            submission=submission,
            held=submission.hold,
        )
        self._state.jobs.add(job)
        self._state.arrivals.append(time.monotonic())
        self._state.changed()
        self.remember(submission.token, job.id)
        return job.id

    def again(self, job: Job, asked: Rerun, host: Inventory) -> str:
        """Return the id of a new job that is as `job` was. It follows no other, unless that is asked for.

        Raises UsageError for a job that was not submitted, and what `accept` raises.
        """
        if job.submission is None:
            raise UsageError(f"{job.id} was launched in the foreground: it was not kept how", "launch it again")
        if job.submission.owner is not None:
            raise UsageError(f"{job.id} has the calls of an Executor", "call them again")
        attached = job.submission.launcher is not None  # then it has only what differs from its launcher's environment
        same = msgspec.structs.replace(
            job.submission,
            after=(),
            after_any=(),
            at=None,
            hold=False,
            launcher=None,
            environ=asked.environ | job.submission.environ if attached else job.submission.environ or asked.environ,
            attributes=job.submission.attributes or asked.attributes,
            token=asked.token,
        )
        return self.accept(asked.change.of(same), host)

    def edit(self, jobs: Sequence[Job], change: QueueChange, host: Inventory | None) -> None:
        """Change queued jobs. `host` is any reading of this host, None where they need no other amount.

        Raises UsageError and NeverFits, and changes nothing, if one of them cannot be changed.
        """
        changed = []
        for job in jobs:
            if job.submission is None or job.state is not JobState.QUEUED:
                state = ENDED.get(job.state, f"is {job.state}")
                raise UsageError(f"{job.id} {state}: only a queued job can be changed", "see gpusched ps")
            if job.is_array and change.is_of_members and self._state.jobs.arrays[job.id].has_begun:
                raise UsageError(f"all members of {job.id} have begun: none is left to change", "see gpusched ps")
            with _naming(job.id):
                asked = _sound(self._with_ids(change.of(job.submission)))
                if host is not None:
                    asked = self._resolved(self._measured(asked, host), host)
            if (circle := self._circle(job.id, asked)) is not None:
                raise UsageError(f"{job.id} would wait for {circle}, which waits for it", "name another with --after")
            changed.append((job, asked))
        for job, asked in changed:
            renamed = self.named(asked, job.id)
            self._state.expectations.forget(job.id)
            promised = job.promised if job.submission and has_same_turn(job.submission, renamed) else None
            self._state.jobs.change(msgspec.structs.replace(job, submission=renamed, promised=promised))
        self._state.changed()

    def _circle(self, job_id: str, asked: Submission) -> str | None:
        """Return the job that this one would follow and that follows it, however far; None if there is none."""
        for first in (*asked.after, *asked.after_any):
            seen, ahead = set[str](), [first]
            while ahead:
                one = ahead.pop()
                if one == job_id:
                    return "itself" if first == job_id else first
                other = self._state.jobs.live.get(one)
                if other is not None and other.submission is not None and one not in seen:
                    ahead += (*other.submission.after, *other.submission.after_any)
                seen.add(one)
        return None

    def _with_ids(self, submission: Submission) -> Submission:
        """Return the submission with the ids of the jobs that it is to follow, which may be typed as names or globs."""
        return msgspec.structs.replace(
            submission, after=self._ids(submission.after), after_any=self._ids(submission.after_any)
        )

    def _ids(self, names: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return selected(self._state.jobs, Selection(names=names)) if names else ()
        except NotFound as error:
            raise NotFound(f"{error.message} to start after", error.hint) from None

    def named(self, submission: Submission, own: str = "") -> Submission:
        """Return the submission with a name that no living job has but `own` (an id): `train`, else `train.2`."""
        name, names = submission.name, self._state.jobs.names
        if not name or names.get(name, own) == own:
            return submission
        stem, present = name[:_LONGEST_STEM], self._state.jobs.live.get(own)
        if present is not None and present.submission is not None:
            mine = present.submission.name or ""
            if _NUMBER.fullmatch(mine.removeprefix(stem)):  # it is called so already, with a number
                return msgspec.structs.replace(submission, name=mine)
        number = next(n for n in itertools.count(self._copies.get(stem, 1) + 1) if names.get(f"{stem}.{n}", own) == own)
        if len(self._copies) >= _KEPT_TOKENS:
            self._copies.clear()
        self._copies[stem] = number
        return msgspec.structs.replace(submission, name=f"{stem}.{number}")

    def remember(self, token: str, job_id: str) -> None:
        """Have a request that comes again with this token answered with the same job."""
        if token:
            self._tokens[token] = job_id
        if len(self._tokens) > _KEPT_TOKENS:
            del self._tokens[next(iter(self._tokens))]

    def _measured(self, submission: Submission, host: Inventory) -> Submission:
        """Return the submission with what was measured of its roles. Raises UsageError for an `auto` too early."""
        inventory = host if submission.machine is None else self._state.devices.machine(submission.machine)[0]
        find = self._state.jobs.store.footprints.find
        return with_measured(submission, inventory, self._state.settings, find, shown=False)

    def _resolved(self, submission: Submission, host: Inventory) -> Submission:
        """Return the submission with the uuids of the devices that it may use; it would fit if the host were idle."""
        inventory = host if submission.machine is None else self._state.devices.machine(submission.machine)[0]
        key = need_of(submission)
        known = self._fitting.get(key)
        if known is None or known[0] != inventory:
            idle = _idle(inventory)
            resolved = _with_devices(submission, idle)
            plan_for(resolved, idle, (), self._state.settings)
            if len(self._fitting) >= _KEPT_ANSWERS:
                self._fitting.clear()
            known = self._fitting[key] = (inventory, resolved)
        return msgspec.structs.replace(submission, only=known[1].only, command=known[1].command)


def has_same_turn(before: Submission, after: Submission) -> bool:
    """Return whether a job that is changed so has the same turn in the queue, and waits for the same.

    Then the moment from which `most_delay` counts stays, too.
    """
    turns = [(one.priority, one.group, one.at, one.after, one.after_any) for one in (before, after)]
    return turns[0] == turns[1] and need_of(before) == need_of(after)


@contextmanager
def _naming(job_id: str) -> Iterator[None]:
    """Put the job's id before what is wrong with it: several were named."""
    try:
        yield
    except (UsageError, NeverFits) as error:
        raise type(error)(f"{job_id}: {error.message}", error.hint) from None


def _with_devices(submission: Submission, inventory: Inventory) -> Submission:
    """Return the submission with the uuids of the devices it may use, and their number where a command asks for all."""
    command, visible = submission.command, submission.visible
    if command is not None and command.devices == 0:
        visible = None
    only = select_devices(inventory, submission.gpus, submission.exclude_gpus, visible, counted=command is not None)
    if command is not None and visible is not None and only is not None and not only:
        hint = "unset CUDA_VISIBLE_DEVICES, or run without a GPU: --num-gpus 0"
        raise NeverFits(restriction(inventory, visible).line, hint)
    if only is not None and command == CommandRequest():
        command = CommandRequest(devices=number_of_devices(inventory, only))
    return msgspec.structs.replace(submission, only=None if only is None else tuple(sorted(only)), command=command)


def _idle(inventory: Inventory) -> Inventory:
    """Return the host as if it were idle: what is out of order now may be mended before the job's turn."""
    return msgspec.structs.replace(
        inventory,
        devices=tuple(msgspec.structs.replace(device, memory_used_mib=0, processes=()) for device in inventory.devices),
    )


def _check(submission: Submission) -> None:
    """Raise UsageError for what no command of ours would send, and what would only fail when its turn has come."""
    name = submission.workload.name
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a workload", "use letters, digits, - and _, at most 64")
    if (submission.request is None) == (submission.command is None):
        raise UsageError(f"{name}: it needs either a request or a command", "submit one of both")
    roles = {role.name for role in submission.workload.roles}
    asked = submission.request.roles if submission.request else ()
    if not roles or not {role.name for role in asked} <= roles:
        raise UsageError(f"{name}: the request names roles that the workload does not have", "submit it again")
    if sum(max(0, role.count) for role in asked) > MOST_REPLICAS or any(role.count < 0 for role in asked):
        raise UsageError(f"{name}: more than {MOST_REPLICAS} processes", "ask for fewer")
    if submission.array is not None and (not submission.array.fits or submission.launcher or submission.network):
        raise UsageError(f"{name}: its members are not understood", "see gpusched sweep --help")
    if any(not role.command for role in submission.workload.roles):
        raise UsageError(f"{name}: a role without a command", "give every role a command")
    texts = [word for role in submission.workload.roles for word in role.command]
    texts += [submission.cwd, submission.notify or "", *submission.environ, *submission.environ.values()]
    check_network(submission.workload, submission.network)
    if any("\0" in text for text in texts):
        raise UsageError(f"{name}: a zero byte in a command, a directory or the environment", "leave it out")
    if any(not variable or "=" in variable for variable in submission.environ):
        raise UsageError(f"{name}: a variable of the environment without a name, or with = in it", "unset it")
    if not Path(submission.cwd).is_absolute():
        raise UsageError(f"{submission.cwd!r} is no absolute path", "submit it again")


def _absolute(submission: Submission) -> Submission:
    """Let a machine's file be found from here as from where it was named."""
    machine = submission.machine
    if machine is None or not (os.sep in machine or machine.endswith(".json")):
        return submission
    return msgspec.structs.replace(submission, machine=str(Path(submission.cwd) / machine))


def _sound(submission: Submission) -> Submission:
    """Return the submission. Raises UsageError for one that could be written, and not read again."""
    try:
        msgspec.convert(msgspec.to_builtins(submission), Submission)
    except msgspec.ValidationError as error:
        raise UsageError(f"the job cannot be kept so: {error}", "ask for less, such as fewer jobs to follow") from None
    return submission
