"""The jobs that live, in memory, and the store behind them: changes gather, and one transaction writes them all.

Where the store fails, such as on a full disk, changes are kept and tried again, and new jobs are turned away: what runs
goes on, and nothing starts of which the disk knows nothing.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gpusched.errors import HostFault, NotFound
from gpusched.model.job import Submission
from gpusched.model.lease import Lease
from gpusched.model.queue_group import QueueGroup
from gpusched.model.selection import Selection
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.notify_settings import NotifySettings
from gpusched.storage.array_table import ArrayProgress, ArrayTable
from gpusched.storage.event_table import EventTable
from gpusched.storage.job import Job
from gpusched.storage.job_status import leave_status, status_of
from gpusched.storage.store import Store

__all__ = ["JobTable"]

_LOG: Final = logging.getLogger(__name__)
_RETRY_EVERY_S: Final = 1.0
_LATELY_S: Final = 3600.0
_KEPT_ENVIRONMENTS: Final = 16


class JobTable:
    """All jobs by id; `live` are those that have not ended, oldest first. `known` are the ids of all, ended or not.

    `names` are the ids of those that live by the names that their users gave them, no two of which are equal. `arrays`:
    how far those of them are that stand for many members; a member is one of `live`, too. `groups` are the
    groups of jobs of which something is set, by name.

    `problem` is why nothing can be saved at present, None if it can. `events`: those of its changes, saved with them.
    `store` has what is saved; what changes goes through the table.
    """

    def __init__(self, store: Store, notify: NotifySettings = NotifySettings()) -> None:  # noqa: B008 (it is frozen)
        self.store = store
        self.events = EventTable(store.events, notify)
        self._environments: list[dict[str, str]] = []
        self._added: list[Job] = []
        self._changes: list[Job] = []
        self._retry_at = 0.0
        self._states: dict[str, JobState] = {}
        self._over: dict[str, Job] = {}  # those that ended, until that is saved
        self._arrays_over: dict[str, JobStatus] | None = None  # those that ended lately; None until it is asked for
        self.problem: str | None = None
        self.live = {job.id: self._slim(job) for job in store.live()}
        self.names = {name: job.id for job in self.live.values() if (name := _name(job))}
        self.known = set(store.known_ids())
        self.arrays = ArrayTable()
        for job in list(self.live.values()):
            self._note_array(job)
        self.groups = store.groups()

    @property
    def unsaved(self) -> bool:
        """Whether something is in memory only."""
        return bool(self._added or self._changes or self.events.unsaved)

    def job(self, job_id: str) -> Job:
        """Return a job, ended or not. Raises NotFound."""
        job = self.live.get(job_id) or self._over.get(job_id)
        if job is None and job_id in self.known:
            job = self.store.job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", "see `gpusched ps --all`")
        return job

    def state(self, job_id: str) -> JobState | None:
        """Return the state of a job as of its last change, None if there is no such job."""
        if job_id in self.live:
            return self.live[job_id].state
        if job_id not in self._states and job_id in self.known:
            found = self.store.job(job_id)
            if found is not None:
                self._states[job_id] = found.state
        return self._states.get(job_id)

    def forget_members(self, array: str, states: Sequence[JobState]) -> None:
        """Forget the members of an ended array that ended so: they can begin again. Raises HostFault."""
        gone = [job_id for job_id, state in self.store.members(array) if state in states]
        self.store.forget_members(array, states)
        self._dropped(gone)

    def ended(self, limit: int, skip: int = 0, *, members: bool = False) -> list[Job]:
        """Return the latest jobs that ended after the `skip` latest, latest first; `members`: those of arrays, too."""
        unsaved = [] if skip else [job for job in reversed(self._over.values()) if members or job.array is None]
        saved = self.store.ended(limit, skip, members=members) if limit else []
        return [*unsaved, *(job for job in saved if job.id not in self._over)][:limit]

    def ended_arrays(self, now: float) -> tuple[JobStatus, ...]:
        """Return the arrays that ended within the hour before `now`, as others see them.

        An Executor of which nothing was asked is none.
        """
        if self._arrays_over is None:
            ended = (*self.store.arrays_since(now - _LATELY_S), *self._over.values())
            self._arrays_over = {job.id: status_of(job) for job in ended if _had_members(job)}
        self._arrays_over = _of_the_hour(self._arrays_over, now)
        return tuple(self._arrays_over.values())

    def id_of(self, name: str) -> str | None:
        """Return the id of the job of that name: the one that lives, else the one that ended last."""
        if name in self.names:
            return self.names[name]
        unsaved = [job.id for job in self._over.values() if _name(job) == name]
        return unsaved[-1] if unsaved else self.store.last_named(name)

    def search(self, glob: str | None, asked: Selection, meets: Callable[[Job], bool]) -> list[str]:
        """Return the ids of those that ended, `asked.ended` at the most, latest first; `meets`: is it one of them?"""
        unsaved = [job.id for job in reversed(self._over.values()) if meets(job)]
        saved = self.store.search(glob, asked, asked.ended)
        return [*unsaved, *(job_id for job_id in saved if job_id not in self._over)][: asked.ended]

    def held(self) -> tuple[Lease, ...]:
        """Return what the jobs that have been started and live took when they started."""
        return tuple(lease for job in self.live.values() if job.state is not JobState.QUEUED for lease in job.leases)

    def add(self, job: Job) -> None:
        """Take in a job; `save` returns it if it could not be saved."""
        self.live[job.id] = self._slim(job)
        self.known.add(job.id)
        if name := _name(job):
            self.names[name] = job.id
        self._note_array(job)
        self._added.append(job)

    def adopt(self, job: Job) -> None:
        """Take in a job that another process started: it is there, whether it can be saved or not."""
        self.known.add(job.id)
        self.change(job)

    def change(self, job: Job) -> None:
        """Replace what is known of a job; one that ended leaves `live`."""
        self.events.note_change(self.live.get(job.id), job)
        if job.state in JOB_TERMINAL:
            self._forget(job)
            self._states[job.id] = job.state
            self._over[job.id] = job
            if self._arrays_over is not None and _had_members(job):
                now = time.time()
                self._arrays_over = _of_the_hour({**self._arrays_over, job.id: status_of(job)}, now)
        else:
            self._forget_end(job.id)
            self._rename(self.live.get(job.id), job)
            self._states.pop(job.id, None)
            self.live[job.id] = job
            self._note_array(job)
        if (progress := self.arrays.get(job.array or "")) is not None:
            progress.note(job)
        self._show_members(job.array)
        self._changes.append(job)

    def is_unsaved(self, job_id: str) -> bool:
        """Return whether the end of a job is in memory only."""
        return job_id in self._over

    def remove(self, ids: Sequence[str]) -> None:
        """Forget jobs whose end is saved. Raises HostFault."""
        self.store.remove(ids)
        self._dropped(ids)

    def change_group(self, group: QueueGroup) -> None:
        """Replace what is set of a group; it is on disk at once, or nothing is changed. Raises HostFault."""
        self.store.save_group(group)
        self.groups.pop(group.name, None)
        if not group.is_plain:
            self.groups[group.name] = group

    def _forget_end(self, job_id: str) -> None:
        if self._arrays_over is not None:
            self._arrays_over.pop(job_id, None)

    def _dropped(self, ids: Sequence[str]) -> None:
        self.known.difference_update(ids)
        for job_id in ids:
            self._forget_end(job_id)
            self._states.pop(job_id, None)

    def save(self, now: float) -> list[Job]:
        """Write all that changed, in one transaction. Return the jobs that are turned away because that failed."""
        if not self.unsaved or (now < self._retry_at and not self._added):
            return []
        try:
            with self.store.transaction():
                for job in self._added:
                    self.store.add(job)
                for job in self._changes:
                    self.store.save(job)
                self.events.write()
        except HostFault as error:
            return self._failed(error, now)
        self._added.clear()
        self._changes.clear()
        self.events.saved()
        for job in self._over.values():
            leave_status(job)
        self._over.clear()
        if self.problem is not None:
            _LOG.warning("the database can be written again")
            self.problem = None
        return []

    def _failed(self, error: HostFault, now: float) -> list[Job]:
        if self.problem is None:
            _LOG.error("%s", error)
        self.problem = str(error)
        self._retry_at = now + _RETRY_EVERY_S
        refused, self._added = self._added, []
        for job in refused:
            self._forget(job)
            self.known.discard(job.id)
            self._states.pop(job.id, None)
            self._over.pop(job.id, None)
            self._forget_end(job.id)
        gone = {job.id for job in refused}
        self.events.drop(gone)
        self._changes = [job for job in self._changes if job.id not in gone]
        return refused

    def _rename(self, former: Job | None, job: Job) -> None:
        before, now = former and _name(former), _name(job)
        if before == now:
            return
        if before and self.names.get(before) == job.id:
            del self.names[before]
        if now:
            self.names[now] = job.id

    def _note_array(self, job: Job) -> None:
        """Take in an array that is new here, or resumed."""
        if job.submission is None or job.submission.array is None:
            return
        if job.id not in self.arrays:
            self.arrays[job.id] = ArrayProgress(job.submission.array, self.store.members(job.id))
        self.arrays[job.id].array = job.submission.array
        self._show_members(job.id)

    def _show_members(self, array: str | None) -> None:
        if array in self.arrays and array in self.live:
            self.live[array] = msgspec.structs.replace(self.live[array], members=self.arrays[array].status())
            self.arrays.changed.add(array)

    def _forget(self, job: Job) -> None:
        self.live.pop(job.id, None)
        self.arrays.pop(job.id, None)
        self.arrays.changed.discard(job.id)
        name = _name(job)
        if name and self.names.get(name) == job.id:
            del self.names[name]

    def _slim(self, job: Job) -> Job:
        """Let jobs that were submitted in the same environment share it: it is most of what a waiting job takes."""
        if job.submission is None:
            return job
        environ = next((one for one in self._environments if one == job.submission.environ), job.submission.environ)
        self._environments = [environ, *(one for one in self._environments if one is not environ)]
        del self._environments[_KEPT_ENVIRONMENTS:]
        submission: Submission = msgspec.structs.replace(job.submission, environ=environ)
        return msgspec.structs.replace(job, submission=submission)


def _of_the_hour(arrays: dict[str, JobStatus], now: float) -> dict[str, JobStatus]:
    return {job_id: job for job_id, job in arrays.items() if now - (job.ended or 0.0) < _LATELY_S}


def _had_members(job: Job) -> bool:
    array = None if job.submission is None else job.submission.array
    return array is not None and array.count > 0


def _name(job: Job) -> str | None:
    return None if job.submission is None else job.submission.name
