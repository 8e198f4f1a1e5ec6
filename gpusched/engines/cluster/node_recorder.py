"""Reports of a job's nodes, kept in the job's directory on the host that submitted it, where a local job has them.

JOBDIR/nodes/2.json       the part of node 2 as its supervisor shows it (NodeStatus)
JOBDIR/logs/actor.9.log   what the replicas write, wherever they run
JOBDIR/progress.jsonl     what the leader reports
"""

import contextlib
import os
import select
from pathlib import Path
from typing import Final, Self

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.hosts import remove_former_keys
from gpusched.execution.log_cut import cut_log
from gpusched.execution.nodes import forget_end, learner_directory, node_file, read_node, write_engine_note
from gpusched.linux.files import make_private, replace_file
from gpusched.linux.regular_files import append_regular
from gpusched.model.cluster_job import ClusterJob, LogPart, NodeMessage, NodeStatus, ProgressLine, Refused
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus, as_lost
from gpusched.settings import LOG_CAP_MIB

__all__ = ["NodeRecorder", "announce"]

_MOST_LINE: Final = 1 << 24
_CHUNK: Final = 1 << 16


_decoder: msgspec.json.Decoder[NodeMessage] = msgspec.json.Decoder(NodeMessage)


class NodeRecorder:
    """Records the messages of node `number` of the job in `job`. A context manager: at its end an unended part is lost.

    The recorder of a node that was cut off may end late: what a later `incarnation` has written stays.
    """

    def __init__(self, job: Path, number: int, incarnation: int) -> None:
        self._directory, self._path, self._number = JobDirectory(job), node_file(job, number), number
        self._incarnation = incarnation
        self.refused: Refused | None = None
        self._rest = b""
        self._cap = _cap_of(self._directory)
        self._last: NodeStatus | None = None
        make_private(self._path.parent)
        self._last = self._written()

    def __enter__(self) -> Self:
        if self._last is not None and self._last.status.state is not JobState.QUEUED:  # also one that had failed
            self._last = msgspec.structs.replace(self._last, status=_as_if_it_ran(self._last.status))
        self._lose("begins again")
        self._last = None
        return self

    def __exit__(self, *_: object) -> None:
        self._lose("is gone")
        if self._number == 0:
            remove_former_keys(learner_directory(self._directory.path), self._incarnation)

    @property
    def state(self) -> JobState | None:
        """The state of the part that the node reported last, None if it reported nothing."""
        return None if self._last is None else self._last.status.state

    @property
    def failed(self) -> bool:
        """Whether the part's replicas have used up their restarts, by the node's last report."""
        return self.state is JobState.FAILED and self._last is not None and not self._last.unheard

    def receive(self, node: int, silence_s: float) -> bool:
        """Take a node's messages from the pipe `node` until it closes it; False if it fell silent for `silence_s`.

        Its first message may come late: it may have to wait for a place. A line that is no message is passed over, as
        is an empty one, the heartbeat of a node.
        """
        patience_s: float | None = None
        while select.select([node], [], [], patience_s)[0]:
            patience_s = silence_s
            chunk = os.read(node, _CHUNK)
            if not chunk:
                return True
            self.feed(chunk)
        return False

    def feed(self, chunk: bytes) -> None:
        """Take the lines that end in `chunk`, and keep what it has of the next; see `receive`."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in filter(None, lines):
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                self.take(_decoder.decode(line))
        self._rest = rest if len(rest) < _MOST_LINE else b""

    def take(self, message: NodeMessage) -> None:
        """Write one thing down. What cannot be is left out: a full disk costs what was to be seen of the job."""
        with contextlib.suppress(OSError):
            match message:
                case NodeStatus():
                    self._write(message)
                case LogPart():
                    self._append(Path(message.replica).name, message.text.encode(errors="replace"))
                case ProgressLine():
                    append_regular(self._directory.progress, f"{message.line}\n".encode(errors="replace"))
                case Refused():
                    self.refused = message
                    write_engine_note(self._directory.path, message.message)

    def _append(self, name: str, text: bytes) -> None:
        """Add to a log, and cut it if it has grown beyond the job's cap. Raises OSError."""
        path = self._directory.log(name)
        append_regular(path, text)
        if self._cap and path.lstat().st_size > self._cap:
            cut_log(path, self._cap)

    def _write(self, update: NodeStatus) -> None:
        replicas = tuple(
            msgspec.structs.replace(one, node=update.host, log=str(self._directory.log(one.name)))
            for one in update.status.replicas
        )
        status = msgspec.structs.replace(update.status, replicas=replicas)
        self._last = msgspec.structs.replace(update, status=status)
        written = self._written()
        if written is not None and written.status.attempt >= self._incarnation:
            return
        replace_file(self._path, msgspec.json.encode(self._last))

    def _written(self) -> NodeStatus | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return read_node(self._directory.path, self._number)
        return None

    def _lose(self, what: str) -> None:
        if self._last is not None and self._last.status.state is not JobState.QUEUED:
            with contextlib.suppress(OSError):
                self._write(msgspec.structs.replace(self._last, status=as_lost(self._last.status, f"its node {what}")))


def _as_if_it_ran(status: JobStatus) -> JobStatus:
    replicas = tuple(msgspec.structs.replace(one, state=ReplicaState.RUNNING) for one in status.replicas)
    return msgspec.structs.replace(status, state=JobState.RUNNING, replicas=replicas)


def announce(job: JobDirectory, group: ClusterJob) -> None:
    """Write down what is to run on the nodes, before any of them reports. Raises OSError."""
    forget_end(job.path)
    make_private(node_file(job.path, 0).parent)
    for number, share in enumerate(group.nodes):
        named = [
            (role, f"{role}.{share.first[role] + rank}")
            for role, count in share.counts.items()
            for rank in range(count)
        ]
        status = JobStatus(
            id=job.path.name,
            workload=group.workload.name,
            state=JobState.QUEUED,
            counts=(),
            replicas=tuple(ReplicaStatus(name=name, role=role, log=str(job.log(name))) for role, name in named),
            run_dir=str(job.path),
        )
        replace_file(node_file(job.path, number), msgspec.json.encode(NodeStatus(host="", status=status)))


def _cap_of(job: JobDirectory) -> int:
    """Return how many bytes a log of the job may hold, 0: any."""
    try:
        return job.read_spec().log_cap_mib << 20
    except HostFault:  # the job has removed it
        return LOG_CAP_MIB << 20
