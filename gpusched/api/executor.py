"""Executor: functions that run as jobs of the queue, as concurrent.futures has it."""

import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, Unpack

from msgspec.structs import replace

from gpusched.api.arguments import RunArguments, with_arguments
from gpusched.api.commands import command_submission, with_preload
from gpusched.api.plan_arguments import require_known
from gpusched.api.validation import require_type
from gpusched.calls import calls_of, cancel_call, is_begun, read_result, result_of, write_call
from gpusched.control.messages import Done, Extend, Stop
from gpusched.errors import GpuschedError, JobFailed, NoDaemon, NotFound, UsageError
from gpusched.execution.daemon_link import Link
from gpusched.execution.start import this_process
from gpusched.linux.files import remove_tree
from gpusched.model.array import Array, AtMost, member_id
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.settings import Settings, load_settings

__all__ = ["Executor", "JobFuture"]

P = ParamSpec("P")
T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.02
_SLOWER: Final = 1.2
_IDLE_S: Final = 0.25
_MOST_AHEAD: Final = 100
_LONGEST_NAME: Final = 100
_ODD: Final = re.compile(r"[^\w.-]")


class JobFuture(futures.Future[T]):
    """The future of a call. `job_id`: the id of the job that runs it, such as "run-7[3]"."""

    def __init__(self, job_id: str, calls: Path, number: int) -> None:
        super().__init__()
        self.job_id: Final = job_id
        self.number: Final = number
        self._calls = calls
        self._guard = threading.Lock()
        self._is_withdrawn = False

    def cancel(self) -> bool:
        """Cancel the call if no process has taken it yet; return whether it is cancelled."""
        with self._guard:
            possible = not (self._is_withdrawn or self.running() or self.done())
            self._is_withdrawn = self._is_withdrawn or (possible and cancel_call(self._calls, self.number))
        return self._is_withdrawn and super().cancel()

    def has_begun(self) -> bool | None:
        """Return whether a process has taken the call; None if it is cancelled."""
        with self._guard:
            return None if self._is_withdrawn else is_begun(self._calls, self.number)


class Executor(futures.Executor):
    """Runs each call as a job of the queue, on the part of a GPU that is asked for, in a process of its own.

    The arguments are those of gpusched.run, for each call: `memory`, `fraction`, `num_gpus` and the others. `at_most`:
    how many calls run at the same time; None: as many as have a place. `preload`: modules that are imported once for
    all calls, whose processes are forked from that. Functions, arguments and results travel as cloudpickle files in the
    directories of the jobs. A call whose process dies fails with JobFailed and the reason; the others go on. All end
    when this process ends, and Ctrl-C stops them. A call runs once: `requeue` and `retry` are refused.

    All calls are members of one array, whose id is `array`, and whose `name` is that of the program. Raises what
    gpusched.run raises.

    Example: with Executor(fraction=0.25, at_most=8) as executor: print(list(executor.map(train, [1e-3, 1e-4])))
    """

    @with_arguments(RunArguments)
    def __init__(self, at_most: int | None = None, preload: Sequence[str] = (), **given: Unpack[RunArguments]) -> None:
        require_known(given, RunArguments)
        require_type(at_most, AtMost | None, "at_most")
        if given.get("requeue") or given.get("retry"):
            raise UsageError("a call runs once", "leave requeue and retry out, and call it again")
        self._settings, self._process = load_settings(os.environ), os.getpid()
        self._lock = threading.Lock()
        self._number = 0
        self._over = False
        job = _array(given, at_most, preload, self._settings)
        self.array: Final = job.id
        self._calls = calls_of(Path(job.run_dir))
        self._calls.mkdir(mode=0o700)
        self._pending = _Pending(job, self._calls, self._settings, weakref.ref(self))
        self._thread = threading.Thread(target=self._pending.run, name=f"executor-{job.id}")
        self._thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Have a call run, and return its future. Raises RuntimeError after `shutdown`."""
        if os.getpid() != self._process:
            raise RuntimeError("this executor belongs to the process that this one was forked of: make another one")
        with self._lock:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._pending.failed is not None:
                raise self._pending.failed
            number, self._number = self._number, self._number + 1
            future: JobFuture[T] = JobFuture(member_id(self.array, number), self._calls, number)
            try:
                write_call(self._calls, number, fn, args, kwargs)
            except Exception as error:  # noqa: BLE001 (pickling runs code of any class; as ProcessPoolExecutor has it)
                self._number = number
                future.set_exception(error)
                return future
            self._pending.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 (its signature)
        """Take no more calls. `wait`: until all have ended; `cancel_futures`: those that have not begun do not."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._over = True
        if cancel_futures:
            self._pending.cancel_all()
        self._pending.close()
        if wait:
            self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all calls; after Ctrl-C (KeyboardInterrupt) stop them, which leaves each its grace."""
        if kind is not None and issubclass(kind, KeyboardInterrupt) and os.getpid() == self._process:
            self._pending.interrupt()
        self.shutdown()


class _Pending:
    """The calls that have no result yet, and the thread that finds their results."""

    def __init__(self, job: JobStatus, calls: Path, settings: Settings, executor: "weakref.ref[Executor]") -> None:
        self._id, self._directory, self._calls = job.id, Path(job.run_dir), calls
        self._settings, self._executor = settings, executor
        self._futures: dict[int, JobFuture[Any]] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._count = self._known = self._needed = self._cancelled = 0
        self.failed: GpuschedError | None = None
        self._closed = self._interrupted = self._stopped = False

    def add(self, future: JobFuture[Any]) -> None:
        """Take in a future whose call is written."""
        with self._lock:
            self._futures[future.number] = future
            self._count = future.number + 1
        self._changed.set()

    def cancel_all(self) -> None:
        """Cancel what has not begun."""
        for future in self._waiting():
            future.cancel()

    def close(self) -> None:
        """Let the thread end with the last call."""
        self._closed = True
        self._changed.set()

    def interrupt(self) -> None:
        """Cancel what has not begun, have the thread stop what has, and end with that."""
        self._interrupted = True
        self.cancel_all()
        self.close()

    def run(self) -> None:
        """Send what is new, and find results, until all calls have ended and no more can come."""
        rest_s = _POLL_S
        try:
            with Link(self._settings, starts=True, lasting=True) as link:
                while not self._is_over():
                    self._changed.clear()
                    self._send(link)
                    if self._interrupted and not self._stopped:
                        link.ask(Stop(ids=(self._id,), why="Ctrl-C ended the program that it belongs to"), Done)
                        self._stopped = True
                    rest_s = _POLL_S if self._settle(link) else min(_IDLE_S, rest_s * _SLOWER)
                    self._changed.wait(rest_s)
                link.ask(Extend(id=self._id, count=self._needed, close=True), Done)
        except BaseException as error:  # noqa: BLE001 (no future may wait for a thread that has ended)
            self.failed = error if isinstance(error, GpuschedError) else JobFailed(f"{self._id}: {error!r}", "")
            self._fail_all(self.failed)
        finally:
            remove_tree(self._calls)

    def _is_over(self) -> bool:
        """Return whether nothing is pending and nothing can come: also at the interpreter's end."""
        at_end = not threading.main_thread().is_alive()
        if at_end and not self._interrupted and getattr(sys, "last_type", None) is KeyboardInterrupt:
            self.interrupt()
        if self._executor() is None or at_end:
            self._closed = True
        return self._closed and not self._futures and self._known == self._count

    def _send(self, link: Link) -> None:
        if self._known < self._count:
            count = self._count
            link.ask(Extend(id=self._id, count=count), Done)
            self._known = count

    def _waiting(self) -> list[JobFuture[Any]]:
        with self._lock:
            return list(self._futures.values())

    def _settle(self, link: Link) -> bool:
        """Take in what is known of calls that have begun; return whether something is new.

        No future is kept here any longer than it has no result: who has the result may wait for its memory.
        """
        waiting, without, new = self._waiting()[::-1], list[JobFuture[Any]](), False
        while waiting and len(without) <= _MOST_AHEAD:  # they begin in the order of their numbers
            new = self._contained(waiting.pop(), without) or new
        return (bool(without) and self._ask(link, without)) or new

    def _contained(self, future: JobFuture[Any], without: list[JobFuture[Any]]) -> bool:
        """Take in one call; what goes wrong at it, as in a callback of its future, is no fault of the others."""
        try:
            return self._take_in(future, without)
        except BaseException:
            _LOG.exception("%s", future.job_id)
            self._forget(future)
            if not future.done():
                raise
            return True

    def _take_in(self, future: JobFuture[Any], without: list[JobFuture[Any]]) -> bool:
        """Return whether a call has ended; else it is put to those `without` a result."""
        begun = future.has_begun()
        if begun is None:
            self._forget(future)
            futures.Future.cancel(future)  # which it may be about to do itself
            future.set_running_or_notify_cancel()
            return True
        if begun:
            self._needed = max(self._needed, future.number + 1)
            if self._finish(future):
                return True
            if not future.running():
                future.set_running_or_notify_cancel()
        without.append(future)
        return False

    def _ask(self, link: Link, calls: list[JobFuture[Any]]) -> bool:
        """Ask what became of members without a result, where there are more of these than live; as `_settle`."""
        (array,) = link.jobs((self._id,))
        if array.array is None or array.state in JOB_TERMINAL:
            for future in self._waiting():
                if future.has_begun() is None or not self._finish(future):
                    self._fail(future, _failure(array))
            return True
        begun = [one for one in calls if one.number < array.array.count - array.array.waiting]
        if array.array.cancelled > self._cancelled:  # any of them may have been stopped, also before it began
            self._cancelled, begun = array.array.cancelled, self._waiting()
        elif len(begun) <= array.array.live:
            return False
        ended = [job for job in _present(link, [one.job_id for one in begun]) if job.state in JOB_TERMINAL]
        by_id = {one.job_id: one for one in begun}
        for job in ended:
            if not self._finish(by_id[job.id]):
                self._fail(by_id[job.id], _failure(job))
        return bool(ended)

    def _finish(self, future: JobFuture[Any]) -> bool:
        """Set the result of a call, if it is there."""
        path = result_of(self._directory.with_name(future.job_id))
        try:
            value, error = read_result(path)
        except FileNotFoundError:
            return False
        except (GpuschedError, OSError) as problem:
            value, error = None, problem
        else:
            with suppress(OSError):
                path.unlink()
        self._forget(future)
        if not future.running():
            future.set_running_or_notify_cancel()
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
        return True

    def _fail(self, future: JobFuture[Any], error: Exception) -> None:
        self._forget(future)
        if future.has_begun() is None:
            futures.Future.cancel(future)
        if future.running() or future.set_running_or_notify_cancel():
            future.set_exception(error)

    def _fail_all(self, error: GpuschedError) -> None:
        for future in self._waiting():
            self._fail(future, error)

    def _forget(self, future: JobFuture[Any]) -> None:
        with self._lock:
            self._futures.pop(future.number, None)


def _array(given: Any, at_most: int | None, preload: Sequence[str], settings: Settings) -> JobStatus:
    """Queue an array that is open for the calls of this process."""
    given = {"name": _program(), **given}
    found = with_preload(command_submission([sys.executable, "-m", "gpusched.calls"], given, settings), preload)
    owned = replace(found, array=Array(count=0, open=True, at_most=at_most), owner=this_process())
    with Link(settings, starts=True) as link:
        return link.submit(owned)


def _program() -> str | None:
    """Return the name of the program that runs, None in a notebook: what all calls run would name none of them."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or path.startswith("<"):  # such as <stdin>
        return None
    file = Path(path).resolve()
    found = _ODD.sub("-", file.parent.name if file.stem == "__main__" else file.stem)
    return found[:_LONGEST_NAME].strip(".") or None


def _present(link: Link, ids: list[str]) -> list[JobStatus]:
    """Return those of the jobs that there are: one may wait to begin behind another that has begun."""
    try:
        return list(link.jobs(ids))
    except NoDaemon:  # which is a NotFound, too
        raise
    except NotFound:
        return [] if len(ids) == 1 else [job for one in ids for job in _present(link, [one])]


def _failure(job: JobStatus) -> JobFailed:
    why = "it ended without a result" if job.state is JobState.SUCCEEDED else job.message or f"it is {job.state}"
    return JobFailed(f"{job.id}: {why}", f"see gpusched logs '{job.id}'")
