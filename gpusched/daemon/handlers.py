"""What each request of the control link means. A handler changes the jobs; the answer goes out once that is saved."""

import logging
import os
import time
from functools import partial
from typing import Final
from weakref import WeakSet

import msgspec

import gpusched
from gpusched.control.messages import (
    Answer,
    Await,
    ChangeGroup,
    Done,
    Drain,
    Drained,
    Edit,
    Explain,
    Explained,
    Extend,
    Groups,
    Hold,
    Jobs,
    ListGroups,
    ListJobs,
    Ping,
    Pong,
    Remove,
    Rerun,
    Resume,
    Select,
    Selected,
    Shutdown,
    Stop,
    Submit,
    Submitted,
    Turn,
    TurnIs,
)
from gpusched.control.usage_messages import MOST_USAGES, FindMeasured, ListUsage, Measured, Usages
from gpusched.daemon.admission import Admission
from gpusched.daemon.arrays import extend, may_start, member_that_waits, resume
from gpusched.daemon.drain import drain
from gpusched.daemon.explanation import Explanation
from gpusched.daemon.groups import change_group, groups_of
from gpusched.daemon.idle_jobs import idle_now
from gpusched.daemon.lifecycle import STOPPED
from gpusched.daemon.recovery import Adoption
from gpusched.daemon.removal import remove
from gpusched.daemon.selection import selected
from gpusched.daemon.server import Asked, Server, refusal
from gpusched.daemon.state import DaemonState
from gpusched.daemon.stopping import stop_job
from gpusched.daemon.usage_rows import usage_of
from gpusched.errors import GpuschedError, HostFault, NotFound, UsageError
from gpusched.model.array import array_of
from gpusched.model.device import Inventory
from gpusched.model.status import ENDED, JOB_TERMINAL, JobState, JobStatus
from gpusched.model.usage import RoleUsage
from gpusched.model.why import Why
from gpusched.storage.job import Job
from gpusched.storage.job_status import status_of

__all__ = ["Handlers"]

_MOST_EXPLANATIONS: Final = 20
_LOG: Final = logging.getLogger(__name__)


class Handlers:
    """Answers requests. Those that wait for something are left with `state.waiting`."""

    def __init__(self, state: DaemonState, server: Server, adoption: Adoption) -> None:
        self._state, self._server, self._adoption = state, server, adoption
        self._admission = Admission(state)
        self._explanations = WeakSet[Explanation]()

    def handle(self, asked: Asked, now: float) -> Answer | None:
        """Return the answer to a request, None if it comes later. It raises nothing."""
        try:
            return self._handle(asked, now)
        except GpuschedError as error:
            return refusal(error)
        except Exception as error:  # noqa: BLE001 (a request must not end the daemon)
            _LOG.exception("a request could not be handled: %s", type(asked.request).__name__)
            return refusal(GpuschedError(f"internal error: {type(error).__name__}: {error}", "see daemon.log"))

    def _handle(self, asked: Asked, now: float) -> Answer | None:  # noqa: C901, PLR0911, PLR0912 (one line for each request)
        match asked.request:
            case Ping():
                return self._pong()
            case Submit():
                return self._submit(asked.request)
            case ListJobs():
                return self._list(asked.request)
            case ListUsage():
                return Usages(rows=self._usage(asked.request))
            case FindMeasured():
                question, footprints = asked.request, self._state.jobs.store.footprints
                return Measured(found=footprints.find(question.keys, question.devices, question.driver))
            case Select():
                self._adoption.scan()
                return Selected(ids=selected(self._state.jobs, asked.request.jobs))
            case Turn():
                self._turn(asked, asked.request, now)
            case Await():
                self._await(asked, asked.request, now)
            case Explain():
                return self._explain(asked, asked.request, now)
            case Stop():
                return self._stop(asked.request, now)
            case Hold():
                return self._hold(asked.request.ids, held=asked.request.held)
            case Edit():
                return self._edit(asked.request)
            case Rerun():
                return self._rerun(asked.request)
            case Resume():
                return self._resume(asked.request)
            case Extend():
                extend(self._state, self._known(asked.request.id), asked.request)
                return Done()
            case Remove():
                return remove(self._state, asked.request.ids, keep_results=asked.request.keep_results)
            case ListGroups():
                return Groups(groups=groups_of(self._state.jobs, asked.request.name))
            case ChangeGroup():
                change_group(self._state.jobs, asked.request.name, asked.request.change)
                self._state.changed()
                return Groups(groups=groups_of(self._state.jobs, asked.request.name))
            case Drain():
                return self._drain(asked.request)
            case Shutdown():
                self._state.over = True
                return Done(report=("the daemon ends; jobs go on",))
        return None

    def _drain(self, request: Drain) -> Drained:
        devices = drain(self._state, request.device, request.reason)
        return Drained(devices=devices, names={uuid: self._state.devices.named(uuid) for uuid in devices})

    def _pong(self) -> Pong:
        state, live = self._state, self._state.jobs.live.values()
        queued = sum(job.state is JobState.QUEUED for job in live)
        drained = [
            f"{state.devices.named(uuid)} takes nothing new: {why}"
            for uuid, why in state.devices.drained_reasons().items()
        ]
        problems = [
            *([state.jobs.problem] if state.jobs.problem else []),
            *state.problems.values(),
            *state.faults.values(),
            *drained,
        ]
        return Pong(
            version=gpusched.__version__,
            pid=os.getpid(),
            started=state.started,
            state_dir=str(state.settings.state_dir),
            queued=queued,
            running=len(live) - queued,
            malformed=self._server.malformed,
            problems=tuple(problems),
            undelivered=state.jobs.store.events.undelivered(),
        )

    def _submit(self, request: Submit) -> Submitted:
        known = self._admission.known(request.job.token)
        if known is not None:  # whatever is wrong by now, this one was taken
            return Submitted(id=known, job=status_of(self._state.jobs.job(known)))
        host = self._host_for_new()
        if any(earlier not in self._state.jobs.known for earlier in (*request.job.after, *request.job.after_any)):
            self._adoption.scan()
        job = self._state.jobs.job(self._admission.accept(request.job, host))
        return Submitted(id=job.id, job=status_of(job))

    def _rerun(self, request: Rerun) -> Submitted:
        known = self._admission.known(request.token)
        job = self._state.jobs.job(
            known or self._admission.again(self._known(request.id), request, self._host_for_new())
        )
        return Submitted(id=job.id, job=status_of(job))

    def _resume(self, request: Resume) -> Submitted:
        job_id = self._admission.known(request.token)
        if job_id is None:
            job_id = resume(self._state, self._known(request.id), request, self._admission.named).id
            self._admission.remember(request.token, job_id)
        return Submitted(id=job_id, job=status_of(self._state.jobs.job(job_id)))

    def _edit(self, request: Edit) -> Done:
        jobs = [self._known(job_id) for job_id in dict.fromkeys(request.ids)]
        host = None if request.change.command is msgspec.UNSET else self._host_for_new()
        self._admission.edit(jobs, request.change, host)
        return Done(report=tuple(f"{job_id} is changed" for job_id in request.ids))

    def _host_for_new(self) -> Inventory:
        """Return a reading of this host for a new job. Raises HostFault if none can be taken."""
        if self._state.jobs.problem is not None:
            raise HostFault(self._state.jobs.problem, "no new job is taken until this is mended; jobs go on")
        host = self._state.devices.known()
        if host is None:
            raise HostFault("this host's devices could not be read yet", "see the output of nvidia-smi, and try again")
        return host

    def _list(self, request: ListJobs) -> Jobs:
        now = time.time()
        self._adoption.scan()
        if request.ids:
            return Jobs(jobs=tuple(self._state.shown(self._begun_or_not(job_id)) for job_id in request.ids))
        live = () if request.skip else self._state.jobs.live.values()
        jobs = [*(job for job in live if job.array is None), *self._state.jobs.ended(request.ended, request.skip)]
        arrays = self._state.jobs.ended_arrays(now) if request.ended_arrays else ()
        shown = (*map(self._state.shown, jobs), *arrays)
        return Jobs(jobs=shown, idle=idle_now(self._state, now))

    def _usage(self, request: ListUsage) -> tuple[RoleUsage, ...]:
        self._adoption.scan()
        return tuple(usage_of(self._state, request.ids, request.since, MOST_USAGES))

    def _turn(self, asked: Asked, request: Turn, now: float) -> None:
        job = self._state.jobs.job(request.id)
        if job.submission is None or job.submission.launcher is None:
            raise UsageError(f"{job.id} is started by the daemon", f"follow it with: gpusched logs -f {job.id}")
        if not self._state.waiting.is_interested(job.id, now):
            self._state.changed()
        self._state.waiting.interested(job.id, now + request.wait_s)
        self._state.waiting.add(asked, now + request.wait_s, partial(self._answer_turn, job.id))

    def _answer_turn(self, job_id: str, late: bool) -> Answer | None:  # noqa: FBT001 (see Waiting.add)
        job = self._state.jobs.job(job_id)
        come = self._state.starts.may_begin(job_id)
        if not (come or late) and job.state in (JobState.QUEUED, JobState.STARTING):
            return None
        return TurnIs(come=come, job=self._state.shown(job))

    def _await(self, asked: Asked, request: Await, now: float) -> None:
        for job_id in request.ids:
            self._awaited(job_id)
        self._state.waiting.add(asked, now + request.wait_s, partial(self._answer_ends, request.ids))

    def _answer_ends(self, ids: tuple[str, ...], late: bool) -> Answer | None:  # noqa: FBT001 (see Waiting.add)
        live = self._state.jobs.live
        if not late and any(job_id in live or member_that_waits(self._state, job_id) for job_id in ids):
            return None
        return Jobs(jobs=tuple(map(self._until_its_end, ids)))

    def _until_its_end(self, job_id: str) -> JobStatus:
        """Return a job for who waits for its end: one that its supervisor has ended may be queued again."""
        status = self._state.shown(self._awaited(job_id))
        if job_id in self._state.jobs.live and status.state in JOB_TERMINAL:
            return msgspec.structs.replace(status, state=JobState.STOPPING)
        return status

    def _awaited(self, job_id: str) -> Job:
        """Return a job for who waits for its end, or asks for it: a member that never began ends with its array."""
        try:
            return self._begun_or_not(job_id)
        except NotFound:
            array = self._state.jobs.job(array_of(job_id) or job_id)
            return Job(
                id=job_id,
                run_dir=array.run_dir,
                created=array.created,
                array=array.id,
                state=JobState.CANCELLED,
                message="it never began",
                ended=array.ended or time.time(),
            )

    def _explain(self, asked: Asked, request: Explain, now: float) -> Explained | None:
        job = self._begun_or_not(request.id)
        if job.state is not JobState.QUEUED or not may_start(self._state, job):
            return Explained(why=Why(job=status_of(job)))
        if len(self._explanations) >= _MOST_EXPLANATIONS:
            raise UsageError(f"{_MOST_EXPLANATIONS} others are just asking why their jobs wait", "ask again")
        explanation = Explanation(self._state, job.id)
        self._explanations.add(explanation)  # until it is answered
        self._state.waiting.add(asked, now + request.wait_s, explanation.answer)
        return None

    def _stop(self, request: Stop, now: float) -> Done:
        self._adoption.scan()
        ids = tuple(self._state.jobs.live) if request.everything else request.ids
        jobs = [self._awaited(job_id) for job_id in dict.fromkeys(ids)]
        return Done(report=tuple(self._stop_one(job, request, now) for job in jobs))

    def _stop_one(self, job: Job, request: Stop, now: float) -> str:
        """Stop a job as it is now: its array may have been stopped just before it."""
        if job.id in self._state.jobs.known:
            job = self._known(job.id)
        elif member_that_waits(self._state, job.id) is None:
            return f"{job.id} is cancelled"
        return stop_job(self._state, job, now, kill=request.kill, why=request.why or STOPPED)

    def _hold(self, ids: tuple[str, ...], *, held: bool) -> Done:
        jobs = [self._known(job_id) for job_id in dict.fromkeys(ids)]
        for job in jobs:
            if job.state is not JobState.QUEUED:
                verb = "held" if held else "released"
                raise UsageError(
                    f"{job.id} {ENDED.get(job.state, f'is {job.state}')}: only a queued job can be {verb}",
                    "see gpusched ps",
                )
        for job in jobs:
            if job.held is not held:
                self._state.jobs.change(msgspec.structs.replace(job, held=held, promised=None))
        self._state.changed()
        return Done(report=tuple(f"{job.id} is {'held' if held else 'queued'}" for job in jobs))

    def _begun_or_not(self, job_id: str) -> Job:
        """Return a job, also a member of an array that has not begun. Raises NotFound."""
        return member_that_waits(self._state, job_id) or self._known(job_id)

    def _known(self, job_id: str) -> Job:
        """Return a job; one that a launch started just now may not have been found yet. Raises NotFound."""
        if job_id not in self._state.jobs.known:
            self._adoption.scan()
        return self._state.jobs.job(job_id)
