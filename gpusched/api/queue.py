"""The queue: submit a job; select, list, hold, release and stop several, and wait for their ends. For one: Job.

`ids` are several jobs or one, each by its id or name, by a glob such as "train*", or as a Job. `settings` are those of
the environment where none are given. All functions raise NotFound for what means no job, NoDaemon and HostFault.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from gpusched.api.selecting import HELD, Since, jobs_of, linked, listed, moment_of, only, selected, states_of, waiting
from gpusched.api.validation import SomeJobs, require_ids, require_one, require_type
from gpusched.errors import GpuschedError, NoDaemon, NotFound, TimedOut, UsageError
from gpusched.execution.daemon_link import Link, in_parts
from gpusched.execution.listing import has_jobs, has_queue, job_names, jobs_on_disk
from gpusched.model import why as model
from gpusched.model.queue_group import GroupName
from gpusched.model.selection import MOST_ENDED_SELECTED, Selection
from gpusched.model.status import JOB_TERMINAL
from gpusched.settings import Settings, load_settings, queue_settings

if TYPE_CHECKING:  # a command's --help needs none of these, and ZeroMQ takes its time
    from gpusched.model.job import Submission
    from gpusched.model.status import JobStatus

__all__ = [
    "Change",
    "FoundJobs",
    "Submitted",
    "Why",
    "as_completed",
    "find_job",
    "find_jobs",
    "hold",
    "job_ids",
    "release",
    "select",
    "select_waiting",
    "stop",
    "submit",
    "why",
]

_COMPLETION_S: Final = 0.4
_SEVERAL: Final = 3
_ASKED_AT_ONCE: Final = 100
_ANSWER_S: Final = 2.0
_ANSWER_OF_ONE_S: Final = 0.1


class FoundJobs(NamedTuple):
    """Jobs, and why no daemon answered where they are what the job directories show of a queue."""

    jobs: "tuple[JobStatus, ...]"
    problem: NoDaemon | None = None


class Change(NamedTuple):
    """What the daemon has done: a line for each job, and the jobs, of `stop` as they were before."""

    report: tuple[str, ...] = ()
    jobs: "tuple[JobStatus, ...]" = ()


class Submitted(NamedTuple):
    """A job that is in the queue now, the variables that it does not get, as they are no UTF-8, and what it risks."""

    job: "JobStatus"
    left_out: tuple[str, ...]
    risks: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of it."""
        return (*self.risks, *(f"the variable {name!a} is no UTF-8 and is left out" for name in self.left_out))


class Why(model.Why, frozen=True, kw_only=True):
    """Why a job waits, and until when, as a value that prints; see gpusched.model.why."""

    def __repr__(self) -> str:
        from gpusched.render.ansi import plain
        from gpusched.render.why import draw_why

        return plain(lambda width: draw_why(self, time.time(), width))


def find_jobs(ids: SomeJobs = (), ended: int = 0, *, settings: Settings | None = None) -> FoundJobs:
    """Return these jobs, or all that run or wait, and the `ended` latest of the others, latest first.

    A glob means the `ended` latest of those that ended, too. Where no daemon answers the jobs are those of the job
    directories, which know the names of what has begun.
    """
    require_type(ended, Annotated[int, msgspec.Meta(ge=0)], "ended")
    settings, names = settings or queue_settings(os.environ), require_ids(ids, "ids")
    try:
        with Link(settings) as link:
            return FoundJobs(jobs_of(link, names, ended))
    except NoDaemon as error:
        found = jobs_on_disk(settings, names, ended)
        return FoundJobs(found, error if has_queue(settings) else None)


def find_job(name: SomeJobs, *, settings: Settings | None = None) -> FoundJobs:
    """Return the one job that an id, a name or a glob means, as find_jobs does. Raises UsageError for several."""
    one = require_one(name, "name")
    found = find_jobs(one, _SEVERAL, settings=settings)
    only(one, [job.id for job in found.jobs])
    return found


def select(
    names: SomeJobs = (),
    *,
    last: bool = False,
    state: str | Sequence[str] = (),
    since: Since | None = None,
    text: str | None = None,
    group: str | None = None,
    ended: int = 0,
    settings: Settings | None = None,
) -> tuple[str, ...]:
    """Return the ids of jobs: of those that `names` mean, or of all, those that meet every condition.

    Those that live come first, the oldest first, then those that ended, the latest first. `ended`: how many of these a
    glob, or no name, means at the most; 0: only jobs that live, or where a condition asks for others, all.

    `state`: "running", or several, also as "failed,lost"; "held" is one, too. `since`: jobs that live, or ended after
    this moment, or not longer ago than a span such as "2h". `text` is in their command or options, their directory or
    name. `group`: jobs in this group. `last`: of all these the one that came last, whether it has ended or not. Raises
    UsageError for an argument that is none of these, NotFound for a group that there never was.

    Example: queue.stop(queue.select("train*", state="queued"))
    """
    require_type(last, bool, "last")
    require_type(text, str | None, "text")
    require_type(group, GroupName | None, "group")
    require_type(ended, Annotated[int, msgspec.Meta(ge=0)], "ended")
    given = listed(state)
    states = states_of([one for one in given if one != HELD], ", held")
    moment = None if since is None else moment_of(since, "since")
    among_ended = last or moment is not None or not JOB_TERMINAL.isdisjoint(states)
    most = MOST_ENDED_SELECTED if among_ended and not ended else min(ended, MOST_ENDED_SELECTED)
    ids = require_ids(names, "names")
    asked = Selection(
        names=ids, last=last, states=states, held=HELD in given, since=moment, text=text, group=group, ended=most
    )
    return _selected(asked, settings)


def select_waiting(
    names: SomeJobs = (), *, group: str | None = None, settings: Settings | None = None
) -> tuple[str, ...]:
    """Return the ids of jobs of which something waits to start, also of sweeps that run: of `names`, and of a group.

    Raises UsageError, and NotFound for a group that there never was.
    """
    require_type(group, GroupName | None, "group")
    return _selected(Selection(names=require_ids(names, "names"), group=group, waits=True), settings)


def _selected(asked: Selection, settings: Settings | None) -> tuple[str, ...]:
    settings = settings or queue_settings(os.environ)
    if not asked.names and not has_jobs(settings):
        if asked.group is not None:
            raise NotFound(f"there is no group {asked.group}", "see `gpusched group`")
        return ()
    with linked(settings, asked.names) as link:
        return link.select(asked)


def submit(submission: "Submission", *, settings: Settings | None = None) -> Submitted:
    """Put a job into the queue of the daemon, which is started if there is none. Raises what the daemon refuses it for.

    gpusched.submit and gpusched.run make a submission of their arguments.
    """
    from gpusched.execution.plan_options import ignored_lines
    from gpusched.execution.submission import unencodable
    from gpusched.model.job import Submission

    require_type(submission, Submission, "submission")
    settings = settings or load_settings(os.environ)
    risks = ignored_lines(submission, settings)
    with Link(settings, starts=True) as link:
        return Submitted(link.submit(submission), tuple(unencodable(os.environ)), risks)


def hold(ids: SomeJobs, *, settings: Settings | None = None) -> Change:
    """Keep queued jobs from starting until they are released. Jobs that run go on."""
    return _hold(ids, settings, held=True)


def release(ids: SomeJobs, *, settings: Settings | None = None) -> Change:
    """Let jobs start when their turn comes."""
    return _hold(ids, settings, held=False)


def stop(
    ids: SomeJobs = (), *, everything: bool = False, kill: bool = False, settings: Settings | None = None
) -> Change:
    """Ask jobs, or `everything` that runs or waits, to end, with their grace to save their work; `kill`: at once.

    It returns before they have ended (see as_completed); a job that has ended stays as it is.
    """
    from gpusched.control.messages import Done, Stop

    names, settings = require_ids(ids, "ids"), settings or queue_settings(os.environ)
    if bool(names) == everything:
        raise UsageError("name jobs, or --all" if everything else "no job is named", "gpusched stop JOB..., or --all")
    with linked(settings, names) as link:
        found = jobs_of(link, names) if names or has_jobs(settings) else ()
        ids = tuple(job.id for job in found) if names else ()
        if everything:
            return Change(link.ask(Stop(everything=True, kill=kill), Done).report, found) if found else Change()
        parts = (link.ask(Stop(ids=part, kill=kill), Done).report for part in in_parts(ids))
        return Change(tuple(chain.from_iterable(parts)), found)


def as_completed(
    ids: SomeJobs, timeout: float | None = None, *, settings: Settings | None = None
) -> Iterator["JobStatus"]:
    """Yield each of the jobs when it has ended, in whatever way. Raises TimedOut `timeout` seconds after the call.

    Of several the daemon is asked every 0.1 s for each that is left, and every 2 s at least.
    """
    require_type(timeout, Annotated[float, msgspec.Meta(ge=0)] | None, "timeout")
    deadline = None if timeout is None else time.monotonic() + timeout
    return _ends(list(dict.fromkeys(require_ids(ids, "ids"))), deadline, settings or queue_settings(os.environ))


def why(job: SomeJobs, *, settings: Settings | None = None) -> Why:
    """Return why a job waits, when it is expected to start, and what would let it start now.

    The daemon plays the queue on for that, for up to 2 seconds. Raises UsageError for several jobs.
    """
    from gpusched.control.messages import Explain, Explained

    name = require_one(job, "job")
    with linked(settings or queue_settings(os.environ), (name,)) as link:
        found = link.ask(Explain(id=only(name, selected(link, (name,), _SEVERAL, unbegun=True))), Explained).why
    return Why(**msgspec.structs.asdict(found))


def job_ids(begin: str = "") -> list[str]:
    """Return the ids and names that begin so of jobs that run or wait; ids of all jobs if no daemon answers at once.

    It raises only UsageError for what is no text: it is what a shell completes.
    """
    from gpusched.control.client import Client
    from gpusched.control.messages import Jobs, ListJobs

    require_type(begin, str, "begin")
    names: list[str] = []
    with suppress(GpuschedError):
        settings = queue_settings(os.environ)
        names = job_names(settings)
        with Client(settings) as client:
            answer = client.ask(ListJobs(), _COMPLETION_S)
        if isinstance(answer, Jobs):
            names = [name for job in answer.jobs for name in (job.id, job.name) if name]
    return [name for name in names if name.startswith(begin)]


def _hold(ids: SomeJobs, settings: Settings | None, *, held: bool) -> Change:
    """Hold or release jobs. Raises UsageError for none, by which all jobs would be meant."""
    from gpusched.control.messages import Done, Hold

    names = require_ids(ids, "ids")
    if not names:
        raise UsageError("no job is named", "name one or more")
    with linked(settings or queue_settings(os.environ), names) as link:
        ids = waiting(link, names)
        parts = (link.ask(Hold(ids=part, held=held), Done).report for part in in_parts(ids))
        return Change(tuple(chain.from_iterable(parts)), link.jobs(ids))


def _ends(left: list[str], deadline: float | None, settings: Settings) -> Iterator["JobStatus"]:
    with linked(settings, left) as link:
        left = list(selected(link, left, unbegun=True)) if left else []
        found = _ended(link, left)
        while True:
            for job in found:
                if job.state in JOB_TERMINAL and job.id in left:
                    left.remove(job.id)
                    yield job
            if not left:
                return
            rest = _ANSWER_S if len(left) == 1 else min(_ANSWER_S, _ANSWER_OF_ONE_S * len(left))
            rest = rest if deadline is None else min(rest, deadline - time.monotonic())
            if rest <= 0:
                goes_on = ", ".join(f"{job.id} is {job.state}" for job in found if job.id in left)
                raise TimedOut(f"the time is up: {goes_on}", "the jobs go on; see gpusched ps --why")
            found = _ended(link, left[:1], rest)
            if len(left) > 1:
                found = _ended(link, left)


def _ended(link: Link, ids: Sequence[str], wait_s: float = 0.0) -> "tuple[JobStatus, ...]":
    """Return the jobs once all have ended, or after `wait_s`; one whose supervisor ended it has a guard for a while."""
    from gpusched.control.messages import Await, Jobs

    parts = in_parts(ids, _ASKED_AT_ONCE)
    return tuple(job for part in parts for job in link.ask(Await(ids=part, wait_s=wait_s), Jobs).jobs)
