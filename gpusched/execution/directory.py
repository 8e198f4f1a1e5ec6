"""The directory of a job: where everything lies that outlives its processes, and what others may read of it.

    STATE_DIR/jobs/snake-4/          0700
        spec.json                    what the supervisor starts (JobSpec)
        status.json                  the job as others see it (JobStatus), replaced whole
        events.jsonl                 every move of job and replicas, with Unix times
        progress.jsonl               written by the workload's leader
        guard.lock                   held while guard or supervisor live; the nonce of the attempt that may start
        lease                        a symbolic link to the job's lease (leases/directory.py)
        environ                      what a guard takes as its environment, for the moment that it needs for it
        orders.jsonl                 what the supervisor is asked to do while it runs (orders.py)
        logs/actor.3.log             stdout and stderr of a replica, all attempts
        logs/supervisor.log          what guard and supervisor log
        ready/actor.3.0              empty: the replica reported in that attempt that it has begun its work
        tmp/                         TMPDIR of the replicas, cleared at the end
        keys/                        of a job that listens or joined one: who may reach whom (network.py)
        keys.2/                      the same of one start of a learner on a cluster
        invitation.json              of a job that listens: what its learner answers to a join (joining/invitation.py)
        joined.json                  written by that learner: the hosts whose actors feed it

It starts and signals nothing.
"""

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.hosts import with_joined, with_network
from gpusched.execution.nodes import merge_node_status
from gpusched.execution.reports import last_progress
from gpusched.execution.spec import JobSpec
from gpusched.linux.file_locks import held
from gpusched.linux.files import make_private, overwrite_file, remove_tree, replace_file
from gpusched.linux.processes import boot_id, seconds_since_boot, start_time
from gpusched.linux.regular_files import append_regular, open_regular, read_regular, tail_lines
from gpusched.model.status import (
    JOB_TERMINAL,
    REPLICA_TERMINAL,
    ExitReason,
    JobState,
    JobStatus,
    ReplicaState,
    ReplicaStatus,
)
from gpusched.runtime import READY_DIRECTORY, ready_name

__all__ = [
    "JobDirectory",
    "as_lost",
    "complete",
    "create",
    "initial_status",
    "is_alive",
    "last_lines",
    "list_jobs",
    "read_job",
    "reserve",
    "seen_whole",
]

START_PATIENCE_S: Final = 30.0
"""How long a supervisor may take to write its first status; a job without one that is older is lost."""

_MOST_SPEC: Final = 128 << 20
_MOST_STATUS: Final = 32 << 20
_NOT_UNDERSTOOD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TMP: Final = "tmp"
_GUARD_LOCK: Final = "guard.lock"
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class JobDirectory:
    """The paths of one job's directory, and how its files are read and written."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.spec = self.path / "spec.json"
        self.status = self.path / "status.json"
        self.events = self.path / "events.jsonl"
        self.progress = self.path / "progress.jsonl"
        self.orders = self.path / "orders.jsonl"
        self.guard_lock = self.path / _GUARD_LOCK
        self.lease = self.path / "lease"
        self.environ = self.path / "environ"
        self.tmp = self.path / _TMP
        self.logs = self.path / "logs"
        self.ready = self.path / READY_DIRECTORY
        self.supervisor_log = self.logs / "supervisor.log"

    def log(self, replica: str) -> Path:
        """Return the log file of a replica, such as logs/actor.3.log."""
        return self.logs / f"{replica}.log"

    def write_spec(self, spec: JobSpec) -> None:
        """Save what the supervisor is to start. Raises OSError."""
        replace_file(self.spec, msgspec.json.format(msgspec.json.encode(spec)))

    def read_spec(self) -> JobSpec:
        """Return what the supervisor is to start. Raises HostFault."""
        try:
            return msgspec.json.decode(read_regular(self.spec, _MOST_SPEC), type=JobSpec)
        except OSError as error:
            raise HostFault(f"{self.spec}: {error.strerror}", "launch the job again") from None
        except _NOT_UNDERSTOOD as error:
            raise HostFault(f"{self.spec}: {error}", "launch the job again") from None

    def write_status(self, status: JobStatus) -> None:
        """Replace status.json by `status`: a reader sees the old one or the new one, whole. Raises OSError."""
        replace_file(self.status, msgspec.json.encode(status))

    def leave_status(self, status: JobStatus) -> None:
        """Write the end of a job that nothing runs of, for readers without a daemon; not synced. Raises OSError."""
        replace_file(self.status, msgspec.json.encode(status), synced=False)

    def overwrite_status(self, status: JobStatus) -> bool:
        """Write `status` over the old one, if that leaves room for it; return whether it did. Raises OSError."""
        return overwrite_file(self.status, msgspec.json.encode(status))

    def read_status(self) -> JobStatus | None:
        """Return the saved status, or None before the first. Raises HostFault."""
        try:
            return msgspec.json.decode(read_regular(self.status, _MOST_STATUS), type=JobStatus)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HostFault(f"{self.status}: {error.strerror}", "make it a readable file, or move it away") from None
        except _NOT_UNDERSTOOD as error:
            raise HostFault(f"{self.status}: {error}", "it was not written by gpusched: move it away") from None

    def append_events(self, events: Iterable[Mapping[str, object]]) -> None:
        """Append to events.jsonl, one JSON object a line. Raises OSError."""
        append_regular(self.events, b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    def clear_tmp(self) -> None:
        """Remove what the replicas left in TMPDIR, as far as that is allowed."""
        remove_tree(self.tmp)

    def is_guarded(self) -> bool:
        """Return whether a guard of the job, or its supervisor, lives. It asks only, and disturbs no process.

        It is so too where this process can open no more files just now: to take a living job for a dead one is worse.
        """
        return _is_locked(self.guard_lock)


def create(state_dir: Path, workload: str) -> JobDirectory:
    """Make the directory of a new job, ready for its start; see `reserve`. Raises HostFault where it cannot be made."""
    directory = reserve(state_dir, workload)
    try:
        complete(directory)
    except BaseException:
        remove_tree(directory.path)
        raise
    return directory


def reserve(state_dir: Path, workload: str, after: int = 0) -> JobDirectory:
    """Make the directory of a new job, `WORKLOAD-N` with the lowest N above all that exist; its name is the job's id.

    With `after` N is the lowest above that for which there is none; this reads no other directory. mkdir decides
    between two that try at the same time. What it needs to start is made by `complete`: on a disk, a directory takes
    its time. Raises HostFault where it cannot be made.
    """
    jobs = state_dir / "jobs"
    try:
        make_private(jobs)
        taken = () if after else (_number(entry.name, workload) for entry in jobs.iterdir())
        number = max(taken, default=after) + 1
        while not _made(jobs / f"{workload}-{number}"):
            number += 1
    except OSError as error:
        hint = "make room or make it writable, or set GPUSCHED_STATE_DIR to another directory"
        raise HostFault(f"cannot make a job's directory in {jobs}: {error.strerror}", hint) from None
    return JobDirectory(jobs / f"{workload}-{number}")


def complete(directory: JobDirectory) -> None:
    """Make what is missing in a job's directory before it can start. Raises HostFault."""
    try:
        for path in (directory.logs, directory.ready, directory.tmp):
            make_private(path)
    except OSError as error:
        hint = "see that the state directory has room and is writable"
        raise HostFault(f"{error.filename or directory.path}: {error.strerror}", hint) from None


def initial_status(directory: JobDirectory, spec: JobSpec) -> JobStatus:
    """Return the status of a job of which nothing has started yet."""
    status = JobStatus(
        id=spec.id,
        workload=spec.workload,
        state=JobState.QUEUED,
        counts=spec.counts,
        replicas=tuple(
            ReplicaStatus(
                name=one.replica.name,
                role=one.replica.role,
                device_index=one.replica.device_index,
                device_uuid=one.replica.device_uuid,
                limit_mib=one.replica.limit_mib,
                share_mib=one.replica.share_mib,
                since=spec.created,
                log=None if spec.attached else str(directory.log(one.replica.name)),
                further=one.replica.further,
            )
            for one in spec.replicas
        ),
        run_dir=str(directory.path),
        simulated=spec.simulated,
        machine=spec.machine,
        created=spec.created,
        attempt=spec.attempt,
        time_limit_s=spec.time_limit_s,
    )
    return with_network(status, spec.network)


def as_lost(status: JobStatus, message: str, ended: float | None = None) -> JobStatus:
    """Return `status` as that of a job whose supervisor is gone; a status that is terminal stays as it is.

    `ended` is in Unix seconds, or None where no process saw the end.
    """
    if status.state in JOB_TERMINAL:
        return status
    replicas = tuple(
        one
        if one.state in REPLICA_TERMINAL
        else msgspec.structs.replace(
            one, state=ReplicaState.EXITED, pid=None, retry_at=None, exit=ExitReason(kind="lost")
        )
        for one in status.replicas
    )
    return msgspec.structs.replace(status, state=JobState.LOST, replicas=replicas, message=message, ended=ended)


def list_jobs(state_dir: Path, ended_since: float = 0.0) -> tuple[JobStatus, ...]:
    """Return all jobs that have a spec, oldest first, each with its last line of progress.

    A job whose supervisor is gone without a last word is shown as lost, and so is one whose files cannot be read,
    unless its guard lives; `message` has why. Only a state directory that cannot be listed raises HostFault. Jobs that
    ended before `ended_since`, in Unix seconds, may be missing: this spares reading thousands of them.
    """
    jobs = state_dir / "jobs"
    try:
        with os.scandir(jobs) as entries:
            paths = [Path(entry) for entry in entries if _is_listed(entry.path, ended_since)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise HostFault(f"{jobs}: {error.strerror}", "make it readable, or set GPUSCHED_STATE_DIR") from None
    return tuple(sorted(map(read_job, paths), key=lambda job: (job.created, job.id)))


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last `count` lines of a log within its last 64 KiB; none if it cannot be read."""
    return [line.decode(errors="replace").rstrip("\r\n") for line in tail_lines(path)[-count:]]


def read_job(path: Path) -> JobStatus:
    """Return the job whose directory is `path`, as list_jobs would show it. It raises nothing: see list_jobs."""
    directory = JobDirectory(path)
    try:
        status = _checked(directory)
    except HostFault as error:
        return JobStatus(
            id=path.name,
            workload=path.name.rpartition("-")[0],
            state=JobState.RUNNING if directory.is_guarded() else JobState.LOST,
            counts=(),
            replicas=(),
            run_dir=str(path),
            message=str(error),
            created=_changed(path),
        )
    return msgspec.structs.replace(seen_whole(status), progress=last_progress(directory.progress))


def seen_whole(status: JobStatus) -> JobStatus:
    """Return a supervisor's status with what others have written of its job: replicas, hosts that joined, nodes."""
    return merge_node_status(with_joined(with_ready(status)))


def with_ready(status: JobStatus) -> JobStatus:
    """Return `status` with the time at which each replica's present process, if any, reported that it was ready."""
    if all(one.started is None for one in status.replicas):
        return status
    since = status.started or 0.0  # an earlier attempt of the whole job may have left a file of the same name
    place = f"{status.run_dir}/{READY_DIRECTORY}"

    def ready(one: ReplicaStatus) -> float | None:
        if one.started is not None:
            with suppress(OSError, ValueError):  # it may not be there, and a status of somebody else has any name
                when = os.lstat(f"{place}/{ready_name(one.name, status.attempt + one.restarts)}").st_mtime
                return when if when >= since else None
        return None

    replicas = tuple(msgspec.structs.replace(one, ready=ready(one)) for one in status.replicas)
    return msgspec.structs.replace(status, replicas=replicas)


def _checked(directory: JobDirectory) -> JobStatus:
    status = directory.read_status()
    if status is None:
        spec = directory.read_spec()
        status = initial_status(directory, spec)
        on_time = 0 <= seconds_since_boot() - spec.prepared_s <= START_PATIENCE_S  # it is negative after a reboot
        late = not on_time and not directory.is_guarded()
        return as_lost(status, "it was never started") if late else status
    if is_alive(status):
        return status
    status = directory.read_status() or status  # its last status may have come between the two reads
    return as_lost(status, f"its supervisor, process {status.supervisor_pid}, is gone")


def is_alive(status: JobStatus) -> bool:
    """Return whether the process that the status names as its supervisor runs: that one, not a later one of its pid."""
    pid, start = status.supervisor_pid, status.supervisor_start
    return pid is not None and start is not None and status.boot_id == boot_id() and start_time(pid) == start


def _is_listed(path: str, ended_since: float) -> bool:
    """Return whether a job's directory has a spec, and its job has not ended long ago.

    The last word of a supervisor changes the directory, and nothing for temporary files is left in it then. A job can
    remove that itself while it runs, but not the lock that its guard holds.
    """
    try:
        old = os.stat(path).st_mtime < ended_since  # noqa: PTH116 (there may be thousands)
        if old and not os.access(f"{path}/{_TMP}", os.F_OK) and not _is_locked(f"{path}/{_GUARD_LOCK}"):
            return False
        os.stat(f"{path}/spec.json")  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it may not be read: read_job will report that
        return True
    return True


def _is_locked(guard_lock: str | Path) -> bool:
    try:
        descriptor = open_regular(guard_lock, os.O_RDONLY)
    except OSError as error:
        return error.errno in _OUT_OF_FILES
    try:
        return held(descriptor, 0, 1)
    finally:
        os.close(descriptor)


def _changed(path: Path) -> float:
    """Return when a file or directory was changed, in Unix seconds; 0 if that is unknown."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _number(name: str, workload: str) -> int:
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == workload and number.isascii() and number.isdigit() else 0


def _made(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True
