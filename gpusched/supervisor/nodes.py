"""A job on a cluster as people see it: what its nodes have told, joined into one status. See engines/told.py."""

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.model.group import NodeStatus
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState

__all__ = ["learner_directory", "node_file", "tell_engine", "with_nodes"]

_NODES: Final = "nodes"
_WORDS: Final = "engine.txt"


def node_file(job: Path, number: int) -> Path:
    """Return the file of what node `number` of the job in the directory `job` has told last."""
    return job / _NODES / f"{number}.json"


def learner_directory(job: Path) -> Path:
    """Return where the learner of the job in the directory `job` leaves its results, on whatever node it runs."""
    return job / "learner" / job.name


def tell_engine(job: Path, words: str) -> None:
    """Leave what the cluster says of the job, such as what it waits for, for with_nodes. Raises OSError."""
    from gpusched.files import replace_file

    replace_file(job / _WORDS, words.encode())


def with_nodes(status: JobStatus) -> JobStatus:
    """Return `status` with the replicas of all nodes, for a job on a cluster; any other as it is.

    Until a node has begun, the job is one that starts, and `note` says what its cluster says of it. Processes of the
    engine itself are shown only where they failed, or the job is over and never had others.
    Why it failed is what its cluster said last.
    """
    if status.engine is None:
        return status
    job = Path(status.run_dir)
    told = [one.status for one in map(_read, _files(job)) if one is not None]
    if status.state in JOB_TERMINAL:
        from gpusched.supervisor.jobdir import lost  # it imports this module

        told = [lost(one, "the job is over") for one in told]
    own = tuple(one for one in status.replicas if one.state is ReplicaState.FAILED)
    replicas = tuple(replica for one in told for replica in one.replicas)
    counts = tuple(count for one in told for count in one.counts)
    if status.state is JobState.FAILED and (why := _words(job)):
        status = msgspec.structs.replace(status, message=": ".join(filter(None, [status.message, why])))
    if status.state in JOB_TERMINAL:
        return msgspec.structs.replace(status, replicas=own + replicas if replicas else status.replicas, counts=counts)
    joined = msgspec.structs.replace(status, replicas=own + replicas, counts=counts)
    begun = [one for one in told if one.state is not JobState.QUEUED]
    notes = [one.note for one in begun if one.note]
    if begun and len(begun) == len(told):
        return msgspec.structs.replace(joined, note=notes[0] if notes else None)
    waiting = JobState.STARTING if status.state is JobState.RUNNING and not begun else status.state
    return msgspec.structs.replace(joined, state=waiting, note=_words(job))


def _files(job: Path) -> list[Path]:
    try:
        return sorted((job / _NODES).glob("*.json"), key=lambda path: (len(path.name), path.name))
    except OSError:
        return []


def _read(path: Path) -> NodeStatus | None:
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=NodeStatus)
    return None


def _words(job: Path) -> str | None:
    with suppress(OSError):
        return (job / _WORDS).read_text(errors="replace") or None
    return None
