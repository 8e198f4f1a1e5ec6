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
        logs.removed                 in the place of logs, where the daemon has removed them
        ready/actor.3.0              empty: the replica reported in that attempt that it has begun its work
        memory/actor.3.0.4711.json   what the frameworks of a process have taken of its device (framework_peaks.py)
        tmp/                         TMPDIR of the replicas, cleared at the end
        keys/                        of a job that listens or joined one: who may reach whom (network.py)
        keys.2/                      the same of one start of a learner on a cluster
        invitation.json              of a job that listens: what its learner answers to a join (joining/invitation.py)
        joined.json                  written by that learner: the hosts whose actors feed it

It starts and signals nothing.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.hosts import with_network
from gpusched.execution.removed import kept_number, make_own
from gpusched.execution.spec import JobSpec
from gpusched.linux.file_locks import is_held
from gpusched.linux.files import make_private, overwrite_file, remove_tree, replace_file
from gpusched.linux.regular_files import append_regular, read_regular
from gpusched.linux.users import user_name
from gpusched.model.status import (
    JobState,
    JobStatus,
    ReplicaStatus,
)
from gpusched.runtime import READY_DIRECTORY

__all__ = [
    "JobDirectory",
    "claim_directory",
    "complete",
    "create",
    "initial_status",
    "own_directory",
]

_MOST_SPEC: Final = 128 << 20
_MOST_STATUS: Final = 32 << 20
_NOT_UNDERSTOOD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
TMP: Final = "tmp"
GUARD_LOCK: Final = "guard.lock"


class JobDirectory:
    """The paths of one job's directory, and how its files are read and written."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.spec = self.path / "spec.json"
        self.status = self.path / "status.json"
        self.events = self.path / "events.jsonl"
        self.progress = self.path / "progress.jsonl"
        self.orders = self.path / "orders.jsonl"
        self.guard_lock = self.path / GUARD_LOCK
        self.lease = self.path / "lease"
        self.environ = self.path / "environ"
        self.tmp = self.path / TMP
        self.logs = self.path / "logs"
        self.ready = self.path / READY_DIRECTORY
        self.supervisor_log = self.logs / "supervisor.log"

    def log(self, replica: str) -> Path:
        """Return the log file of a replica, such as logs/actor.3.log."""
        return self.logs / f"{replica}.log"

    def write_spec(self, spec: JobSpec) -> None:
        """Save what the supervisor is to start. Raises OSError.

        It is not synced: an attempt does not outlive the boot in which it was prepared, and a disk takes milliseconds.
        """
        replace_file(self.spec, msgspec.json.format(msgspec.json.encode(spec)), synced=False)

    def read_spec(self) -> JobSpec:
        """Return what the supervisor is to start. Raises HostFault."""
        try:
            return msgspec.json.decode(read_regular(self.spec, _MOST_SPEC), type=JobSpec)
        except OSError as error:
            raise HostFault(f"{self.spec}: {error.strerror}", "launch the job again") from None
        except _NOT_UNDERSTOOD as error:
            raise HostFault(f"{self.spec}: {error}", "launch the job again") from None

    def write_status(self, status: JobStatus) -> os.stat_result:
        """Replace status.json by `status`: a reader sees the old one or the new one, whole. Raises OSError.

        Returns the attributes of the new file.
        """
        return replace_file(self.status, msgspec.json.encode(status))

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
        """Return whether a guard of the job, or its supervisor, lives. It asks only, and disturbs no process."""
        return is_held(self.guard_lock)


def create(state_dir: Path, workload: str) -> JobDirectory:
    """Make the directory of a new job, ready for its start; see claim_directory. Raises HostFault."""
    directory = claim_directory(state_dir, workload)
    try:
        complete(directory)
    except BaseException:
        remove_tree(directory.path)
        raise
    return directory


def claim_directory(state_dir: Path, workload: str, after: int = 0) -> JobDirectory:
    """Make the directory of a new job, `WORKLOAD-N` with the lowest N above all that exist; its name is the job's id.

    With `after` N is the lowest above that for which there is none; this reads no other directory. No number of a
    removed job is used. mkdir decides between two that try at the same time. What it needs to start is made by
    `complete`: on a disk, a directory takes its time. Raises HostFault where it cannot be made.
    """
    jobs = state_dir / "jobs"
    try:
        make_private(jobs)
        taken = () if after else (_number(entry.name, workload) for entry in jobs.iterdir())
        number = max(*taken, after, kept_number(state_dir, workload)) + 1
        while not _made(jobs / f"{workload}-{number}"):
            number += 1
    except OSError as error:
        hint = "make room or make it writable, or set GPUSCHED_STATE_DIR to another directory"
        raise HostFault(f"cannot make a job's directory in {jobs}: {error.strerror}", hint) from None
    return JobDirectory(jobs / f"{workload}-{number}")


def own_directory(directory: JobDirectory) -> None:
    """Make the directory of a member of an array, unless it is there. Raises HostFault, also where a link is there."""
    try:
        make_own(directory.path)
    except OSError as error:
        hint = "see that the state directory has room and is writable"
        raise HostFault(f"{directory.path}: {error.strerror}", hint) from None


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
        name=spec.name,
        group=spec.group,
        command=spec.command,
        user=user_name(os.geteuid()),
    )
    return with_network(status, spec.network)


def _number(name: str, workload: str) -> int:
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == workload and number.isascii() and number.isdigit() else 0


def _made(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True
