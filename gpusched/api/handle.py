"""A job as Python code sees it: how it is, why it waits, what it wrote, and how it is ended."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar, Unpack

import msgspec

from gpusched.api import queue
from gpusched.api.validation import require_type
from gpusched.errors import NotFound, TimedOut
from gpusched.model.status import JOB_TERMINAL, JobStatus
from gpusched.settings import queue_settings

if TYPE_CHECKING:
    from typing import BinaryIO

    from gpusched.api.arguments import ChangeArguments
    from gpusched.api.files import ResultFile
    from gpusched.execution.job_logs import LogPiece
    from gpusched.execution.reports import Report

__all__ = ["Job", "Moment", "Watch"]

_POLL_S: Final = 0.1
Read = TypeVar("Read")


class Moment(NamedTuple):
    """A job at one moment: its `status`, the reports since the moment before, and its game as text (empty: none)."""

    status: JobStatus
    reports: "Sequence[Report]"
    frame: str


class Watch:
    """Reads what a view of a job shows. It never waits. `frames`: as in Job.moments."""

    def __init__(self, job: "Job", *, frames: bool = False) -> None:
        from gpusched.execution.reports import NewReports

        self._job, self._frames = job, frames
        self._new = NewReports(job.run_dir / "progress.jsonl")

    def read(self) -> Moment:
        """Return this moment. The first has all reports that there are; a long history comes in several."""
        from gpusched.execution.reports import read_frame, watch

        status = self._job.status()
        if self._frames and status.state not in JOB_TERMINAL:
            watch(self._job.run_dir)
        return Moment(status, self._new.read(), read_frame(self._job.run_dir))


class Job:
    """One job by its `id`. Every method reads it again: changes by other processes are seen.

    Methods raise NotFound for a job that there is no more, NoDaemon and HostFault.
    """

    def __init__(
        self,
        job_id: str,
        run_dir: Path,
        *,
        launched: bool = False,
        how_to_join: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.id: Final = job_id
        self.run_dir: Final = run_dir
        """Its directory: results, logs, and what the learner reports."""
        self.how_to_join: Final = how_to_join
        """The lines to run on another host to join it, where it was launched or submitted here with `listen`."""
        self.warnings: Final = warnings
        """What a person should know of it, where it was launched, joined, submitted or run here."""
        self._launched = launched
        self._settings = queue_settings(os.environ)

    def status(self) -> JobStatus:
        """Return how it is now."""
        if self._launched:
            from gpusched.execution.read_jobs import read_job

            return read_job(self.run_dir)
        (found,) = queue.find_jobs(self.id, settings=self._settings).jobs
        return found

    @property
    def why(self) -> str | None:
        """Why it waits, in numbers; None if it does not wait."""
        return self.status().why

    @property
    def results(self) -> Path:
        """Where its results are: its directory, on a cluster that of the node with the learner."""
        if self.status().engine is None:
            return self.run_dir
        from gpusched.execution.nodes import learner_directory

        return learner_directory(self.run_dir)

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Return its status once it has ended, in whatever way. Raises TimedOut after `timeout` seconds."""
        require_type(timeout, Annotated[float, msgspec.Meta(ge=0)] | None, "timeout")
        if self._launched:
            return self._wait_here(None if timeout is None else time.monotonic() + timeout)
        return next(queue.as_completed(self.id, timeout, settings=self._settings))

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to end, with its grace to save its work; `kill`: at once. It returns before the job has ended.

        A job that has ended stays as it is.
        """
        if not self._launched:
            queue.stop(self.id, kill=kill, settings=self._settings)
            return
        from gpusched.execution.start import stop

        with suppress(NotFound):  # it has ended
            stop(self.status(), kill=kill)

    def hold(self) -> None:
        """Keep it in the queue until `release`."""
        queue.hold(self.id, settings=self._settings)

    def release(self) -> None:
        """Let it start when its turn comes."""
        queue.release(self.id, settings=self._settings)

    def edit(self, **given: "Unpack[ChangeArguments]") -> None:
        """Change it while it is queued, such as `priority=5` or `memory="6GiB"`; see gpusched.api.editing.edit."""
        from gpusched.api.editing import edit

        edit(self.id, settings=self._settings, **given)

    def rerun(self, **given: "Unpack[ChangeArguments]") -> "Job":
        """Queue the same again, and return the new job; see gpusched.api.editing.rerun."""
        from gpusched.api.editing import rerun

        found = rerun(self.id, settings=self._settings, **given)
        return Job(found.job.id, Path(found.job.run_dir), warnings=found.warnings)

    def logs(self, replica: str | None = None, *, follow: bool = False, lines: int | None = None) -> Iterator[str]:
        """Yield the lines that its processes wrote, from the last `lines` on (None: all), without line ends.

        `replica`: of this one only, such as "actor.3"; else each line has its process in front if there are several.
        Each start of a process begins with a line such as "--- actor.3, attempt 0, 2026-11-23 12:05:57 UTC ---".
        `follow`: wait for its start, and go on until it has ended. Raises NotFound for a replica that there is not. Of
        an array, the lines of each member that has begun, with its number in front.
        """
        from gpusched.api.logs import log_lines

        return log_lines(self, replica, lines, follow=follow)

    def log_pieces(
        self, replica: str | None = None, *, follow: bool = False, lines: int | None = None
    ) -> "Iterator[LogPiece]":
        """Yield the bytes that its processes wrote, as they are, each piece behind the name of its replica.

        Between them is the width of the names, 0 where there is one only. An empty piece is the end of that log. The
        arguments are those of `logs`. Raises NotFound for a job that has no log, too; an array may have none yet.
        """
        from gpusched.api.logs import log_pieces

        return log_pieces(self, replica, lines, follow=follow)

    def files(self) -> "list[ResultFile]":
        """Return the files that its programs have left in its directory, the latest first: at most 1,000, 4 deep."""
        from gpusched.api.files import result_files

        return result_files(self)

    def open(self, name: str) -> "BinaryIO":
        """Open one of `files` for reading, as bytes. Nothing is followed out of the directory.

        Raises NotFound for a name that is none of them, HostFault for what is no readable file.
        """
        from gpusched.api.files import open_file

        return open_file(self, name)

    def watch(self, every: float = 1.0) -> Iterator[JobStatus]:
        """Yield its status now and every `every` seconds; the last is that of the ended job."""
        require_type(every, Annotated[float, msgspec.Meta(gt=0)], "every")
        return self._statuses(every)

    def progress(self, every: float = 1.0) -> "Iterator[Report]":
        """Yield all that its leader has reported and reports, read every `every` seconds, until it has ended.

        A report has its `time` in Unix seconds, and what the leader gives, such as `step`, `steps_per_s` and `score`.
        """
        return (report for moment in self.moments(every) for report in moment.reports)

    def moments(self, every: float = 1.0, *, frames: bool = False) -> "Iterator[Moment]":
        """Yield all that a view of it shows, now and every `every` seconds; the last is that of the ended job.

        `frames`: have its learner draw a game while it is played, if it can.
        """
        require_type(every, Annotated[float, msgspec.Meta(gt=0)], "every")
        return self._moments(every, frames=frames)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.run_dir == other.run_dir

    def __hash__(self) -> int:
        return hash(self.run_dir)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __str__(self) -> str:
        from gpusched.render.ansi import plain
        from gpusched.render.ps import draw_table

        return plain(lambda width: draw_table([self.status()], time.time(), width, why=True))

    def _repr_html_(self) -> str:
        from gpusched.render.html import jobs_html

        return jobs_html([self.status()])

    def _statuses(self, every: float) -> Iterator[JobStatus]:
        return _until_ended(self.status, lambda status: status, every)

    def _moments(self, every: float, *, frames: bool) -> Iterator[Moment]:
        return _until_ended(Watch(self, frames=frames).read, lambda moment: moment.status, every)

    def _wait_here(self, deadline: float | None) -> JobStatus:
        for status in self._statuses(_POLL_S):
            if status.state in JOB_TERMINAL:
                return status
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"the time is up: {self.id} is {status.state}", "the job goes on; wait again or stop it")
        raise AssertionError("watching ends with the end of the job")


def _until_ended(read: Callable[[], Read], status_of: Callable[[Read], JobStatus], every: float) -> Iterator[Read]:
    """Yield what is read every `every` seconds; the last is of a job that has ended."""
    while True:
        found = read()
        yield found
        if status_of(found).state in JOB_TERMINAL:
            return
        time.sleep(every)
