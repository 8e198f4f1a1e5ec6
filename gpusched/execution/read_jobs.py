"""Jobs as their directories show them: what supervisors, programs and other hosts have written, put together."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.directory import GUARD_LOCK, TMP, JobDirectory, initial_status
from gpusched.execution.hosts import with_joined
from gpusched.execution.nodes import merge_node_status
from gpusched.execution.reports import last_progress
from gpusched.linux.file_locks import is_held
from gpusched.linux.processes import boot_id, seconds_since_boot, start_time
from gpusched.linux.regular_files import read_regular
from gpusched.model.status import JobState, JobStatus, ReplicaStatus, as_lost
from gpusched.runtime import READY_DIRECTORY, ready_name

__all__ = [
    "START_PATIENCE_S",
    "Brief",
    "is_alive",
    "list_jobs",
    "read_briefs",
    "read_job",
    "whole",
    "without_supervisor",
]

START_PATIENCE_S: Final = 30.0
"""How long a supervisor may take to write its first status; a job without one that is older is lost."""

_MOST_STATUS: Final = 32 << 20


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


class Brief(msgspec.Struct, frozen=True):
    """What is read of many jobs at once. Times in Unix seconds."""

    state: JobState
    created: float = 0.0
    ended: float | None = None
    name: str | None = None


def read_briefs(jobs: Path, names: Iterable[str]) -> dict[str, Brief]:
    """Return that of those jobs below the directory `jobs` that have a status. The rest of it is not decoded."""
    decoder, found = msgspec.json.Decoder(Brief), {}
    for name in names:
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found[name] = decoder.decode(read_regular(f"{jobs}/{name}/status.json", _MOST_STATUS))
    return found


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
    return whole(directory, status)


def whole(directory: JobDirectory, status: JobStatus) -> JobStatus:
    """Return a supervisor's status with what others have written of its job: replicas, hosts that joined, nodes."""
    status = merge_node_status(with_joined(with_ready(status)))
    return msgspec.structs.replace(status, progress=last_progress(directory.progress))


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
    return without_supervisor(directory.read_status() or status)  # its last may have come between the two reads


def without_supervisor(status: JobStatus, ended: float | None = None) -> JobStatus:
    """Return the status of a job whose supervisor is gone: lost, unless it is terminal; see as_lost."""
    rebooted = status.boot_id != boot_id()
    gone = f"its supervisor, process {status.supervisor_pid}, is gone without a word"
    return as_lost(status, "the host was booted again while it ran" if rebooted else gone, ended)


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
        if old and not os.access(f"{path}/{TMP}", os.F_OK) and not is_held(f"{path}/{GUARD_LOCK}"):
            return False
        os.stat(f"{path}/spec.json")  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it may not be read: read_job will report that
        return True
    return True


def _changed(path: Path) -> float:
    """Return when a file or directory was changed, in Unix seconds; 0 if that is unknown."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
