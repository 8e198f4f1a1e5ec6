"""submitit on GPUs: `submitit.AutoExecutor(folder, cluster="gpusched")`; its functions are jobs of the queue.

submitit finds these classes by their entry points. `python -m gpusched.submitit FOLDER` is the command of a job: what
it calls lies in that folder as submitit writes it, and its result comes there. A job `run-7[3]` is `run-7_3` there.
"""

import os
import signal
import sys
import time
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec.structs import replace
from submitit.core import core, logger
from submitit.core.job_environment import JobEnvironment, SignalHandler
from submitit.core.utils import DelayedSubmission, JobPaths, UncompletedJobError

from gpusched.errors import GpuschedError, NoDaemon, NotFound, UsageError
from gpusched.model.array import MOST_MEMBERS, Array, array_of, member_id
from gpusched.model.selection import Selection
from gpusched.model.status import JOB_TERMINAL, ArrayStatus, JobState, JobStatus, fault_of, is_out_of_time

if TYPE_CHECKING:
    from gpusched.execution.daemon_link import Link
    from gpusched.model.job import Submission

__all__ = ["GpuschedExecutor", "GpuschedInfoWatcher", "GpuschedJob", "GpuschedJobEnvironment", "main"]

OWN: Final = frozenset(
    {"num_gpus", "memory", "fraction", "processes", "gpus", "exclude_gpus", "ignore_foreign", "machine", "grace", "env"}
    | {"cwd", "group", "priority", "after", "after_any", "at", "time_limit", "idle_end", "hold", "requeue", "notify"}
    | {"at_most"}
)
"""What is given as `gpusched_fraction=0.25`: `at_most` of an array, and arguments of gpusched.run.

`retry` is none of them: a function that raised has a result, so that it would run again for nothing.
"""

_GENERIC: Final = frozenset(
    {"name", "timeout_min", "gpus_per_node", "nodes", "tasks_per_node", "cpus_per_task", "mem_gb", "stderr_to_stdout"}
)
_AMOUNTS: Final = ("num_gpus", "memory", "fraction")
_ALWAYS_ONE: Final = ("nodes", "tasks_per_node")
_NOT_LIMITED: Final = ("cpus_per_task", "mem_gb")
_EXECUTOR: Final = "SUBMITIT_EXECUTOR"
_STATE, _MESSAGE = "State", "Message"
_PENDING, _CANCELLED, _REMOVED = "PENDING", "CANCELLED", "REMOVED"
_STATES: Final = {
    JobState.QUEUED: _PENDING,
    JobState.STARTING: "RUNNING",
    JobState.RUNNING: "RUNNING",
    JobState.STOPPING: "RUNNING",
    JobState.SUCCEEDED: "COMPLETED",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: _CANCELLED,
    JobState.LOST: "NODE_FAIL",
}
"""States by the names that Slurm has for them, as submitit knows them."""


class GpuschedInfoWatcher(core.InfoWatcher):  # type: ignore[misc]
    """Asks the daemon for the states of all jobs at once."""

    def __init__(self, delay_s: int = 1) -> None:
        super().__init__(delay_s)
        self._arrays: dict[str, ArrayStatus | None] = {}

    def clear(self) -> None:
        """Forget what is known of jobs."""
        super().clear()
        self._arrays.clear()

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return the state of a job by the name that Slurm has for it, "UNKNOWN" before it was asked for."""
        return str(self.get_info(job_id, mode).get(_STATE, "UNKNOWN"))

    def update(self) -> None:
        """Read the states of all jobs that have not ended. An error is logged, and the next update asks again."""
        from gpusched.execution.daemon_link import Link
        from gpusched.settings import load_settings

        self._num_calls += 1
        asked = _members_by_job(self._registered - self._finished)
        try:
            with Link(load_settings(os.environ), starts=True) as link:
                found = {job.id: job for job in _those_there(link, tuple(asked))}
                for job_id, members in asked.items():
                    self._info_dict |= self._infos(link, job_id, found.get(job_id), members)
        except GpuschedError as error:
            logger.get_logger().warning(f"the states of jobs are not known: {error}")
        self._last_status_check = time.time()
        self._finished |= {one for one in self._registered - self._finished if self.is_done(one, mode="cache")}

    def _infos(
        self, link: "Link", job_id: str, job: JobStatus | None, members: Collection[str]
    ) -> dict[str, dict[str, str]]:
        """Return what is known of a job, or of these `members` of an array, by submitit's ids."""
        if job is None:
            return {one: {_STATE: _REMOVED} for one in members or (job_id,)}
        if not members:
            return {job_id: _info(job)}
        if self._arrays.get(job_id) == job.array and all(one in self._info_dict for one in members):
            return {}  # no member has begun or ended since
        begun = link.select(Selection(names=(f"{job_id}[]",)))
        ids = {_id_in_queue(one): one for one in members}
        there = _those_there(link, [one for one in begun if one in ids])
        left = {_STATE: _CANCELLED if job.state in JOB_TERMINAL else _PENDING, _MESSAGE: job.message or job.why or ""}
        self._arrays[job_id] = job.array
        return dict.fromkeys(members, left) | {ids[one.id]: _info(one) for one in there}


class GpuschedJob(core.Job):  # type: ignore[misc]
    """A function that runs as a job of the queue."""

    watcher = GpuschedInfoWatcher()
    _results_timeout_s = 0  # a job has written its result when it ends, and no other host's disk is between

    @property
    def id_in_queue(self) -> str:
        """Its id for gpusched: `run-7[3]` of submitit's `run-7_3`."""
        return _id_in_queue(self.job_id)

    def cancel(self, check: bool = True) -> None:  # noqa: FBT001, FBT002 (its signature)
        """End it: it has its grace to save a checkpoint. `check`: raise what the daemon raises."""
        from gpusched.api.queue import stop

        if self.done(force_check=True):
            return
        try:
            stop(self.id_in_queue)
        except GpuschedError:
            if check:
                raise

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        try:
            outcome, result = super()._get_outcome_and_result()
        except UncompletedJobError as error:
            why = self.get_info("cache").get(_MESSAGE) or "it has no result"
            raise UncompletedJobError(f"{self.id_in_queue}: {why}\n{error}") from None
        return outcome, result


class GpuschedJobEnvironment(JobEnvironment):  # type: ignore[misc]
    """What submitit knows within a job: its id, and that it has one task."""

    _env = {  # noqa: RUF012 (as its base class has it)
        "job_id": "GPUSCHED_JOB",
        **dict.fromkeys(("num_tasks", "num_nodes"), "GPUSCHED_ROLE_COUNT"),
        **dict.fromkeys(("node", "global_rank", "local_rank"), "GPUSCHED_RANK"),
    }

    @property
    def array_job_id(self) -> str | None:
        """The id of the array that it is a member of."""
        return array_of(self.raw_job_id)

    @property
    def array_task_id(self) -> str | None:
        """Its number in the array."""
        return os.environ.get("GPUSCHED_INDEX")

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """Save a checkpoint, if the function has one, and end: at the time limit, and when it is stopped."""
        handler = SignalHandler(self, paths, submission)
        for number in (signal.SIGTERM, self._usr_sig()):
            signal.signal(number, handler.checkpoint_and_exit)


class GpuschedExecutor(core.PicklingExecutor):  # type: ignore[misc]
    """Queues functions, each on its part of a GPU; several at once are members of one array.

    Raises what gpusched.run raises for wrong parameters, as soon as they are given.
    """

    job_class = GpuschedJob

    def __init__(self, folder: str | os.PathLike[str], max_pickle_size_gb: float = 1.0) -> None:
        super().__init__(folder, max_num_timeout=0, max_pickle_size_gb=max_pickle_size_gb)

    @classmethod
    def affinity(cls) -> int:
        """Return 0: it is there, and AutoExecutor takes it only by its name."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(OWN)

    def _internal_update_parameters(self, **given: Any) -> None:
        if unknown := sorted(given.keys() - OWN - _GENERIC):
            raise UsageError(f"{unknown[0]} is no parameter", f"known: {', '.join(sorted(OWN | _GENERIC))}")
        for name in _ALWAYS_ONE:
            if given.get(name) not in (None, 1):
                hint = "leave it out: the function can start processes itself"
                raise UsageError(f"{name}={given[name]}: a function runs once, on this host", hint)
        if unlimited := [name for name in _NOT_LIMITED if given.get(name) is not None]:
            warnings.warn(f"gpusched gives out GPUs, and limits no {unlimited[0]}", stacklevel=2)
        _submission(self.folder, {**self.parameters, **given}, 1)
        super()._internal_update_parameters(**given)

    def _internal_process_submissions(self, delayed_submissions: Sequence[DelayedSubmission]) -> list[GpuschedJob]:
        from gpusched.api.queue import submit
        from gpusched.execution.directory import JobDirectory

        folder = JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        asked = _submission(self.folder, self.parameters, len(delayed_submissions))
        calls = [folder / f"{os.urandom(16).hex()}.pkl" for _ in delayed_submissions]
        try:
            self._write_all(delayed_submissions, calls)
            submitted = submit(asked)
        except BaseException:
            for path in calls:
                path.unlink(missing_ok=True)
            raise
        for text in submitted.warnings:
            warnings.warn(text, stacklevel=2)
        array = submitted.job
        ids = [array.id] if asked.array is None else [f"{array.id}_{number}" for number in asked.array.numbers]
        jobs = [self.job_class(self.folder, one) for one in ids]
        for job, path in zip(jobs, calls, strict=True):
            job.paths.move_temporary_file(path, "submitted_pickle")
            directory = JobDirectory(Path(array.run_dir).with_name(job.id_in_queue))
            job.paths.stdout.symlink_to(directory.log(f"{asked.workload.leader}.0"))
        return jobs

    def _write_all(self, calls: Iterable[DelayedSubmission], paths: Iterable[Path]) -> None:
        most, size = self.max_pickle_size_gb * (1 << 30), 0
        for call, path in zip(calls, paths, strict=True):
            size += _write(call, path)
            if size > most:
                hint = "put them into files, or give more: gpusched_max_pickle_size_gb"
                raise UsageError(f"the functions and their arguments take more than {self.max_pickle_size_gb} GB", hint)

    def _num_tasks(self) -> int:
        return 1

    def _make_submission_file_text(self, *_: Any) -> Any:
        raise NotImplementedError("gpusched has no submission file")

    _make_submission_command = _get_job_id_from_submission_command = _make_submission_file_text


def main() -> None:
    """Run the function of this job, and write its result."""
    from submitit.core.submission import process_job

    os.environ[_EXECUTOR] = GpuschedExecutor.name()  # also where another shell has it run again
    process_job(sys.argv[1])


def _submission(folder: Path, given: Mapping[str, Any], count: int) -> "Submission":
    """Return what `count` functions are queued as. Raises UsageError and HostFault."""
    from gpusched.api.commands import command_submission
    from gpusched.api.validation import require_type
    from gpusched.settings import load_settings

    chosen = {name: value for name, value in given.items() if value is not None}
    at_most = chosen.get("at_most")
    require_type(at_most, Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)] | None, "at_most")
    arguments = {name: value for name, value in chosen.items() if name in OWN | {"name"} and name != "at_most"}
    if "timeout_min" in chosen:
        arguments.setdefault("time_limit", 60 * chosen["timeout_min"])
    if "gpus_per_node" in chosen and not any(name in arguments for name in _AMOUNTS):
        arguments["num_gpus"] = chosen["gpus_per_node"]
    argv = [sys.executable, "-u", "-m", "gpusched.submitit", str(folder)]
    found = command_submission(argv, arguments, load_settings(os.environ))
    return found if count == 1 else replace(found, array=Array(count=count, at_most=at_most))


def _write(call: DelayedSubmission, path: Path) -> int:
    """Write a call where no other user can read it, and return its size. Raises whatever pickling raises."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    call.dump(path)
    return path.stat().st_size


def _id_in_queue(job_id: str) -> str:
    array, number = _parts(job_id)
    return member_id(array, int(number)) if number else array


def _parts(job_id: str) -> tuple[str, str]:
    """Return the id of a job, or of an array and the number of a member as text, by submitit's id."""
    array, _, number = job_id.partition("_")
    return array, number


def _members_by_job(ids: Iterable[str]) -> dict[str, list[str]]:
    """Return submitit's ids by the jobs that the daemon is asked for: none for one that is no array."""
    found: dict[str, list[str]] = {}
    for one in ids:
        array, number = _parts(one)
        found.setdefault(array, []).extend([one] if number else [])
    return found


def _those_there(link: "Link", ids: Sequence[str]) -> Sequence[JobStatus]:
    """Return the jobs, without those that were removed."""
    if not ids:
        return ()
    try:
        return link.jobs(ids)
    except NoDaemon:  # which is a NotFound, too
        raise
    except NotFound:
        return () if len(ids) == 1 else [job for one in ids for job in _those_there(link, [one])]


def _info(job: JobStatus) -> dict[str, str]:
    state, fault = _STATES[job.state], fault_of(job)
    if job.state is JobState.FAILED and is_out_of_time(job):
        state = "TIMEOUT"
    elif job.state is JobState.FAILED and fault is not None and fault.kind == "oom":
        state = "OUT_OF_MEMORY"
    return {_STATE: state, _MESSAGE: job.message or job.why or ""}


if __name__ == "__main__":
    main()
