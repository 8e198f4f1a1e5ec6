"""A job on a cluster as people see it: the records of its nodes (engines/cluster/node_recorder.py) as one status.

Beside that, in the job's directory: engine.txt, what the cluster reports of the job; end.txt, why it is over; beat,
which the process that records the nodes touches each second, where it is on a node; silent, there if it does not.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from gpusched.linux.regular_files import read_regular, read_tail
from gpusched.model.cluster_job import NodeStatus
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState, as_lost

__all__ = [
    "beat_file",
    "call_silent",
    "forget_end",
    "learner_directory",
    "merge_node_status",
    "node_file",
    "read_node",
    "read_nodes",
    "role_that_failed",
    "write_engine_note",
]

_NODES: Final = "nodes"
_NOTE: Final = "engine.txt"
_END: Final = "end.txt"
_BEAT: Final = "beat"
_SILENT: Final = "silent"
_MOST_STATUS: Final = 32 << 20
_MOST_FILES: Final = 4096  # of 1,024 nodes at most, and what is being written beside them
_MOST_TEXT: Final = 1 << 16


def node_file(job: Path, number: int) -> Path:
    """Return the file with the last report of node `number` of the job in the directory `job`."""
    return job / _NODES / f"{number}.json"


def read_node(job: Path, number: int) -> NodeStatus:
    """Return the last report of node `number` of the job. Raises OSError, msgspec.MsgspecError."""
    return _decoded(read_regular(node_file(job, number), _MOST_STATUS))


def read_nodes(job: Path) -> list[JobStatus]:
    """Return the status of each node, first to last, as far as it can be read, and up to 32 MiB in all."""
    found, left = [], _MOST_STATUS
    for path in _files(job):
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            content = read_regular(path, left)
            left -= len(content)
            found.append(_decoded(content).status)
    return found


def beat_file(job: Path) -> Path:
    """Return the file that the process that records the nodes touches every second, where it is on a node."""
    return job / _BEAT


def call_silent(job: Path, *, silent: bool) -> None:
    """Leave, for merge_node_status, that the nodes are silent, or that they are not any more. Raises OSError."""
    if silent:
        (job / _SILENT).touch(mode=0o600)
    else:
        (job / _SILENT).unlink(missing_ok=True)


def learner_directory(job: Path) -> Path:
    """Return where the learner of the job in the directory `job` leaves its results, on whatever node it runs."""
    return job / "learner" / job.name


def write_engine_note(job: Path, text: str, *, last: bool = False) -> None:
    """Leave, for merge_node_status, the cluster's report of the job, or with `last` why it is over. Raises OSError."""
    from gpusched.linux.files import replace_file

    replace_file(job / (_END if last else _NOTE), text.encode())


def forget_end(job: Path) -> None:
    """Forget what an earlier attempt of the job has left of its end. Raises OSError."""
    (job / _END).unlink(missing_ok=True)
    call_silent(job, silent=False)


def merge_node_status(status: JobStatus) -> JobStatus:
    """Return `status` with the replicas of all nodes, for a job on a cluster; any other as it is.

    Until a node has begun, the job is one that starts, and `note` has what its cluster reports of it. Processes of the
    engine itself are shown only where they failed by themselves, or the job is over and never had others.
    """
    if status.engine is None:
        return status
    job = Path(status.run_dir)
    parts = read_nodes(job)
    over, silent = status.state in JOB_TERMINAL, os.path.lexists(job / _SILENT)
    fault = _at_fault(parts) if status.state is JobState.FAILED else None
    if over or silent:
        parts = [as_lost(one, "the job is over" if over else "it is silent") for one in parts]
    own = () if fault else tuple(one for one in status.replicas if one.state is ReplicaState.FAILED)
    replicas = own + tuple(replica for one in parts for replica in one.replicas)
    if over and not any(one.replicas for one in parts):
        replicas = status.replicas
    message = fault.message if fault else (_note(job, _END) if own else None) or status.message
    counts = tuple(count for one in parts for count in one.counts)
    joined = msgspec.structs.replace(status, replicas=replicas, counts=counts, message=message)
    return joined if over else _while_it_goes_on(joined, parts, None if not silent else _note(job))


def _while_it_goes_on(job: JobStatus, parts: Sequence[JobStatus], trouble: str | None) -> JobStatus:
    begun = [one for one in parts if one.state is not JobState.QUEUED]
    if begun and len(begun) == len(parts):
        notes = [one.note for one in begun if one.note]
        return msgspec.structs.replace(job, note=trouble or (notes[0] if notes else None))
    waiting = JobState.STARTING if job.state is JobState.RUNNING and not begun else job.state
    return msgspec.structs.replace(job, state=waiting, note=_note(Path(job.run_dir)))


def role_that_failed(parts: Sequence[JobStatus]) -> str | None:
    """Return a role without a live replica on any node: all its replicas have used up their restarts."""
    states: dict[str, set[ReplicaState]] = {}
    for one in parts:
        for replica in one.replicas:
            states.setdefault(replica.role, set()).add(replica.state)
    return next((role for role, found in states.items() if found == {ReplicaState.FAILED}), None)


def _at_fault(parts: Sequence[JobStatus]) -> JobStatus | None:
    """Return the part whose failure is the job's: the learner's, or the last with a role that has no replica left."""
    failed = [one for one in parts if one.state is JobState.FAILED]
    if not failed or failed[0] is parts[0]:
        return failed[0] if failed else None
    role = role_that_failed(parts)
    return next((one for one in reversed(failed) if any(each.role == role for each in one.replicas)), None)


def _files(job: Path) -> list[Path]:
    try:
        with os.scandir(job / _NODES) as entries:
            paths = [Path(entry) for entry in islice(entries, _MOST_FILES) if entry.name.endswith(".json")]
    except OSError:
        return []
    return sorted(paths, key=lambda path: (len(path.name), path.name))


def _decoded(content: bytes) -> NodeStatus:
    return msgspec.json.decode(content, type=NodeStatus)


def _note(job: Path, file: str = _NOTE) -> str | None:
    with suppress(OSError):
        return read_tail(job / file, _MOST_TEXT).decode(errors="replace") or None
    return None
