"""`python -m gpusched.engines.slurm.engine`: the engine `slurm`, the one process of such a job on the submitting host.

It submits the batch script, unless a process before it has done so, waits until Slurm reports that the job is over, and
ends as it did. If it is killed, its supervisor starts another one, which finds the job by its name. The reports of the
job's nodes are in the job's directory, which they share (engines/slurm/batch.py).
"""

import math
import os
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched import runtime
from gpusched.engines.base import Seen
from gpusched.engines.cluster.node_environment import submitters
from gpusched.engines.cluster.node_recorder import announce
from gpusched.engines.cluster.wait import Requests, report_end, telling, wait_for_engine
from gpusched.engines.slurm.commands import (
    Unanswered,
    clear_extras,
    host_names,
    patiently,
    run,
    scancel,
    squeue,
    submit,
    without_slurm,
)
from gpusched.engines.slurm.script import FORMAT, STOP_ASKED, HeadOrder, batch_script, job_name, places, seen
from gpusched.errors import GpuschedError, HostFault, exit_code_of
from gpusched.execution.directory import JobDirectory
from gpusched.execution.nodes import beat_file, call_silent, read_node
from gpusched.execution.read_jobs import read_job
from gpusched.execution.start import stop
from gpusched.linux.files import replace_file
from gpusched.linux.regular_files import last_lines, read_regular
from gpusched.model.cluster_job import ClusterJob
from gpusched.model.status import JOB_TERMINAL, JobState

__all__ = ["Slurm", "main"]

_POLL_EVERY_S: Final = 1.0
_OBEYED_WITHIN_S: Final = 60.0
_ENDS_WITHIN_S: Final = 30.0
_RUNNING_S: Final = 3.0
_MOST_KNOWN: Final = 1 << 16


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What each process of the job must know: the `token` in its name, and its `id` in Slurm once that is known."""

    token: str
    id: str = ""


class Slurm:
    """The job of Slurm that runs the `group` for the job in `directory`; see Engine."""

    def __init__(self, directory: JobDirectory, group: ClusterJob, environ: Mapping[str, str]) -> None:
        self._directory, self._group = directory, group
        given = without_slurm(environ) if "SLURM_JOB_ID" in environ else environ
        self._environ = submitters(given)
        self._file = directory.path / "slurm.json"
        self._known = _read_or_draw(self._file)
        self._places = ("", "")
        self._last = Seen(state=JobState.QUEUED)
        self._next_poll = 0.0
        self._asked_at = math.inf
        self._beat, self._beat_at = 0.0, time.monotonic()

    def submit(self) -> None:
        """Submit it, unless Slurm has a job of its name, or had. Raises UsageError if Slurm refuses it, HostFault."""
        name = job_name(self._known.token)
        found = [] if self._known.id else patiently(lambda: squeue([f"--name={name}"], "%i"))
        if found:
            self._remember(found[-1].strip())
        if self._known.id:
            print(f"found Slurm job {self._known.id}, {name}", flush=True)
            return
        announce(self._directory, self._group)
        order = HeadOrder(
            group=self._group,
            job=self._directory.path.name,
            directory=str(self._directory.path),
            kept=self._directory.read_spec().launcher is None,
        )
        script = batch_script(order, name, str(self._directory.log("slurm")))
        try:
            self._remember(submit(script, self._environ))
        except Unanswered:  # it may have been taken all the same
            found = patiently(lambda: squeue([f"--name={name}"], "%i"))
            if not found:
                raise
            self._remember(found[-1].strip())
        print(f"submitted Slurm job {self._known.id}, {name}", flush=True)

    def poll(self) -> Seen:
        """Return its state in Slurm, which is not asked too often; while Slurm does not answer, the last one."""
        if time.monotonic() < self._next_poll:
            return self._last
        self._next_poll = time.monotonic() + (_RUNNING_S if self._last.state is JobState.RUNNING else 0.0)
        try:
            lines = squeue([f"--jobs={self._known.id}"], FORMAT)
            is_headless = bool(lines) and self._has_lost_its_script(*places(lines[-1]))
        except HostFault as error:
            return msgspec.structs.replace(self._last, message=f"{self._last.message}; {error.message}")
        before, self._last = self._last.state, seen(lines[-1]) if lines else self._as_its_nodes_left_it()
        if (before, self._last.state) == (JobState.RUNNING, JobState.QUEUED):  # Slurm has queued it again
            self._announce()
        if is_headless and not (self._directory.path / STOP_ASKED).exists():
            self._last = self._queue_again()
        elif is_headless or time.monotonic() - self._asked_at > self._group.workload.stop_grace_s + _ENDS_WITHIN_S:
            self._end_orphan()
        elif self._last.state is JobState.RUNNING:
            self._notice_silence()
        else:
            self._beat_at = time.monotonic()
        return self._last

    def cancel(self, *, kill: bool) -> bool:
        """Have its batch script end it in order, or Slurm at once if `kill` or if it has not begun."""
        gently = self._last.state is JobState.RUNNING and not kill
        self._next_poll = 0.0
        try:
            if gently:
                (self._directory.path / STOP_ASKED).touch(mode=0o600)
                self._asked_at = min(self._asked_at, time.monotonic())
            scancel(["--signal=TERM", "--batch", self._known.id] if gently else [self._known.id])
        except (HostFault, OSError):  # it is tried again
            return False
        return True

    def clear_up(self) -> None:
        """Take away what may still wait in Slurm's queue for it. A further attempt has a new job."""
        clear_extras(self._known.id)
        with suppress(OSError):
            self._file.unlink()

    def _remember(self, job_id: str) -> None:
        self._known = msgspec.structs.replace(self._known, id=job_id)
        _write(self._file, self._known)

    def _as_its_nodes_left_it(self) -> Seen:
        """Return how a job ended that Slurm has forgotten, by the last word of its learner's node."""
        message = f"Slurm knows no job {self._known.id} any more"
        with suppress(OSError, msgspec.MsgspecError):
            status = read_node(self._directory.path, 0).status
            state = status.state if status.state in JOB_TERMINAL else JobState.LOST
            return Seen(state=state, message=message)
        return Seen(state=JobState.LOST, message=message)

    def _has_lost_its_script(self, nodes: str, batch: str) -> bool:
        """Return whether the job goes on without its first node: `--no-kill` lets it, and then nothing ends it."""
        if (nodes, batch) == self._places:
            return False
        names = host_names(nodes) if nodes else [batch]
        self._places = (nodes, batch)
        return batch not in names

    def _announce(self) -> None:
        with suppress(OSError):
            announce(self._directory, self._group)

    def _end_orphan(self) -> None:
        """Have Slurm end a job whose batch script cannot: its node is dead, and Slurm may not have noticed yet."""
        with suppress(HostFault):
            scancel([self._known.id])

    def _notice_silence(self) -> None:
        """Mark the state of a job as unknown when its first node falls silent, before Slurm notices."""
        with suppress(OSError):
            beat = beat_file(self._directory.path).stat().st_mtime
            if beat != self._beat:
                self._beat, self._beat_at = beat, time.monotonic()
            silent = time.monotonic() - self._beat_at > self._group.patience_s
            call_silent(self._directory.path, silent=silent)
            if silent:
                message = f"its first node is silent for {self._group.patience_s} s; {self._last.message}"
                self._last = msgspec.structs.replace(self._last, message=message)

    def _queue_again(self) -> Seen:
        """Have Slurm start the job again, and not after the two minutes that it would wait.

        Not within this second: a node that had the job takes nothing more of it that is dated like its end there.
        """
        self._places = ("", "")
        clear_extras(self._known.id)
        try:
            run(["scontrol", "requeue", self._known.id])
            run(["scontrol", "update", f"JobId={self._known.id}", "StartTime=now+3"])
        except HostFault as error:
            return msgspec.structs.replace(self._last, message=f"its first node is lost; {error.message}")
        print("its first node is lost: it is queued again", flush=True)
        self._announce()
        return Seen(
            state=JobState.QUEUED, message=f"Slurm job {self._known.id} has lost its first node and is queued again"
        )


def main() -> int:
    """Run the group of this job's settings to its end; see the module."""
    requests = Requests()
    directory = JobDirectory(runtime.current_replica().run_dir)
    try:
        engine = Slurm(directory, runtime.settings(ClusterJob), os.environ)
        engine.submit()
        ended = wait_for_engine(engine, requests, telling(directory.path), every_s=_POLL_EVERY_S)
        engine.clear_up()
    except (GpuschedError, OSError) as error:
        report_end(directory.path, str(error))
        return exit_code_of(error)
    if ended.state is JobState.CANCELLED and not requests.count:
        _cancel_job(directory, requests)
    why = last_lines(directory.log("slurm"), 1) if ended.state is JobState.FAILED else []
    report_end(directory.path, "; ".join([ended.message, *why]))
    return ended.exit_code


def _cancel_job(directory: JobDirectory, requests: Requests) -> None:
    """Have this process's own supervisor call the job cancelled, as it was in Slurm."""
    with suppress(GpuschedError):
        stop(read_job(directory.path), "cancelled in Slurm (scancel)")
        deadline = time.monotonic() + _OBEYED_WITHIN_S
        while not requests.count and time.monotonic() < deadline:
            time.sleep(0.05)


def _read_or_draw(path: Path) -> _Known:
    """Return what the job is found by, the same in each process of it. Raises HostFault."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(read_regular(path, _MOST_KNOWN), type=_Known)
    known = _Known(token=secrets.token_hex(8))
    _write(path, known)
    return known


def _write(path: Path, known: _Known) -> None:
    try:
        replace_file(path, msgspec.json.encode(known))
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "see that the state directory is writable") from None


if __name__ == "__main__":
    sys.exit(main())
