"""`python -m gpusched.engines.cluster.node`: one node's part of a job on a cluster, which the cluster starts there.

The first line of its standard input is its order (NodeOrder). It runs that as a job of this host, with a plan, leases,
a supervisor and restarts like any other, and reports on its standard output (NodeMessage). Each further line, the end
of its input, and SIGTERM ask it to end: the first in order, the next at once. Exit code: 0 the part
succeeded, 1 it did not, else that of the error (errors.py).
"""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import Final

import msgspec

from gpusched.control.place import private_directory
from gpusched.engines.cluster.node_environment import keep_from_ageing, settings_of_node
from gpusched.engines.cluster.wait import Requests, wait_for_engine
from gpusched.engines.local import Local
from gpusched.engines.registry import cluster_engine
from gpusched.errors import GpuschedError, HostFault, NotNow, StillRuns
from gpusched.execution.directory import JobDirectory, complete
from gpusched.execution.hosts import join_key, key_directory, remove_former_keys
from gpusched.execution.nodes import learner_directory
from gpusched.execution.plan_options import PlanOptions
from gpusched.execution.read_jobs import read_job
from gpusched.execution.submission import workload_submission
from gpusched.joining.tcp import Tcp
from gpusched.linux.files import make_private, remove_tree, replace_file
from gpusched.linux.regular_files import read_from
from gpusched.model.cluster_job import ClusterJob, LogPart, NodeMessage, NodeOrder, NodeStatus, ProgressLine, Refused
from gpusched.model.job import JobShard, Listening, NodeActors, Submission
from gpusched.model.status import JOB_TERMINAL, JobStatus
from gpusched.model.workload import Workload
from gpusched.probe.base import read_inventory
from gpusched.probe.host import host_name
from gpusched.runtime import LEARNER_LOST
from gpusched.settings import Settings

__all__ = ["main", "submission_of", "workload_of"]

_MOST_READ: Final = 1 << 16
_BUSY_S: Final = 20.0
_BEAT_S: Final = 1.0


def main() -> int:
    """Run the part that is ordered; see the module."""
    requests = Requests()
    try:
        stdin = os.fdopen(os.dup(0), "rb", buffering=0)  # unbuffered: a thread that reads it must not hold up the end
        order = msgspec.json.decode(stdin.readline(), type=NodeOrder)
    except msgspec.MsgspecError as error:
        print(f"this is no order to a node: {error}", file=sys.stderr)
        return HostFault.exit_code
    mouth = MessageWriter()
    threading.Thread(target=_receive, args=(stdin, requests), daemon=True).start()
    threading.Thread(target=mouth.beat, daemon=True).start()
    try:
        return _run(order, settings_of_node(os.environ), requests, mouth)
    except GpuschedError as error:
        yet = isinstance(error, StillRuns) or (order.number == 0 and _still_runs(order))
        mouth.write([Refused(message=f"{host_name()}: {error}", yet=yet)])
        return error.exit_code
    except OSError as error:
        mouth.write([Refused(message=f"{host_name()}: {error.filename or 'the node'}: {error.strerror}")])
        return HostFault.exit_code


def workload_of(order: NodeOrder) -> Workload:
    """Return the workload with as many replicas as this node has of each role; without the leader, there is none."""
    whole, share = order.group.workload, order.group.nodes[order.number]
    roles = tuple(msgspec.structs.replace(role, count=share.counts.get(role.name, 0)) for role in whole.roles)
    leads = whole.leader is not None and share.counts.get(whole.leader, 0) > 0
    return msgspec.structs.replace(whole, roles=roles, leader=whole.leader if leads else None)


def submission_of(order: NodeOrder, directory: Path, handed: str | None) -> Submission:
    """Return the part as a job of this host in `directory`; `handed` names its devices."""
    group = order.group
    network: Listening | NodeActors
    if order.number == 0:
        everywhere = Tcp("0.0.0.0", Tcp.parse(order.learner, "the learner").port)  # noqa: S104 (by CURVE keys only)
        network = Listening(endpoint=everywhere.endpoint, incarnation=order.incarnation)
    else:
        network = NodeActors(
            endpoint=order.learner,
            job=order.job,
            key=str(join_key(directory)),
            incarnation=order.incarnation,
            patience_s=group.patience_s,
        )
    wish = PlanOptions(
        machine=None if group.gpus else "cpu",
        gpus=handed if group.gpus else None,
        learner_memory=group.learner_memory,
        actor_memory=group.actor_memory,
        policy=group.policy,
        grow=group.grow,
        fixed=True,
    )
    return workload_submission(workload_of(order), group.options.encode(), wish, network)


def _run(order: NodeOrder, settings: Settings, requests: Requests, mouth: "MessageWriter") -> int:
    os.chdir(order.group.cwd)
    private_directory(settings.runtime_dir)
    keep_from_ageing(settings.runtime_dir)
    directory = JobDirectory(_place(order, settings))
    _sweep(settings, order)
    make_private(directory.path)
    complete(directory)
    submission = submission_of(order, directory.path, _handed(order.group))
    keys = key_directory(directory.path, submission.network)
    make_private(keys)
    for name, held in order.keys.items():
        replace_file(keys / name, held.encode())
    first, counts = order.group.nodes[order.number].first, order.group.counts
    part = JobShard(job=order.job, first=first, counts=counts, attempt=order.incarnation - 1)
    engine = Local(directory, submission, settings, part)
    news = ChangeTracker(directory)
    try:
        _submit(engine, requests, order.group.workload.stop_grace_s)
        remove_former_keys(directory.path, order.incarnation - 1)
        seen = wait_for_engine(engine, requests, lambda _: mouth.write(news.since(engine.status())))
        mouth.write(news.since(engine.status(), last=True))
        return seen.exit_code
    finally:
        remove_tree(keys if order.number == 0 else directory.path.parent)


def _submit(engine: Local, requests: Requests, grace_s: float) -> None:
    """Start the part; one before it may need its grace to end, with its devices. Raises GpuschedError."""
    deadline = time.monotonic() + grace_s + _BUSY_S
    while True:
        try:
            engine.submit()
        except (StillRuns, NotNow):
            if requests.count or time.monotonic() >= deadline:
                raise
            time.sleep(_BEAT_S)
        else:
            return


def _still_runs(order: NodeOrder) -> bool:
    """Return whether an earlier learner has not ended yet, and so has its devices: with them full, no plan is made."""
    return JobDirectory(learner_directory(Path(order.directory))).is_guarded()


def _handed(group: ClusterJob) -> str | None:
    """Return the devices that the cluster has handed over, None for all that can be seen. Raises HostFault."""
    gpus = group.gpus
    if gpus == 0 or len(read_inventory(None)[0].devices) == gpus:
        return None
    engine = cluster_engine(group.engine)
    handed = next((os.environ[name] for name in engine.handed if os.environ.get(name)), None)
    if handed is not None and len(handed.split(",")) != gpus:
        problem = f"{gpus} GPUs were asked for, and {handed!r} was handed over"
        raise HostFault(problem, "ask who runs the cluster what sets CUDA_VISIBLE_DEVICES there")
    if handed is None:
        problem = f"{gpus} GPUs were asked for, and none is named by {' or '.join(engine.handed)}"
        raise HostFault(problem, engine.handed_hint)
    return handed


def _place(order: NodeOrder, settings: Settings) -> Path:
    """Return where the part has its files: the learner's beside the job's own, the others' on this node alone.

    What the learner leaves must outlast this node, and no second learner may write there: a learner holds the
    directory's lock. The others must be able to end when the file server cannot be reached.
    """
    if order.number == 0:
        return learner_directory(Path(order.directory))
    return settings.runtime_dir / "nodes" / f"{_mark(order)}.{order.incarnation}" / order.job


def _mark(order: NodeOrder) -> str:
    """Return what the places of a part on this node begin with, in all of its incarnations."""
    return f"{hashlib.sha256(os.fsencode(order.directory)).hexdigest()[:8]}.{order.number}"


def _sweep(settings: Settings, order: NodeOrder) -> None:
    """Remove what earlier incarnations of the part have left here that were killed with their node, keys among it."""
    for left in settings.runtime_dir.glob(f"nodes/{_mark(order)}.*/{order.job}"):
        if read_job(left).state in JOB_TERMINAL:
            remove_tree(left.parent)


def _receive(stdin: RawIOBase, requests: Requests) -> None:
    """Read further requests to end. A closed pipe is one."""
    while line := stdin.readline():
        requests.ask(kill=line.strip() == b"kill")
    requests.ask()


class MessageWriter:
    """The standard output. A node whose output has no reader belongs to no job."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._is_read = True

    def write(self, messages: Iterable[NodeMessage]) -> bool:
        """Write lines; return whether they have a reader."""
        for one in messages:
            self._write(msgspec.json.encode(one) + b"\n")
        return self._is_read

    def beat(self) -> None:
        """Write an empty line every second as a heartbeat of this node, however slow a disk is."""
        while self._is_read:
            self._write(b"\n")
            time.sleep(_BEAT_S)

    def _write(self, line: bytes) -> None:
        with self._turn:
            try:
                while self._is_read and line:
                    line = line[os.write(1, line) :]
            except OSError:
                self._is_read = False


class ChangeTracker:
    """What is new since it was asked last: the status if it changed, and what was added to logs and progress file."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory, self._host = directory, host_name()
        self._status: JobStatus | None = None
        before = (*directory.logs.glob("*.log"), directory.progress)  # of an attempt that has sent them itself
        self._read = {path: path.stat().st_size for path in before if path.exists()}

    def since(self, status: JobStatus, *, last: bool = False) -> Iterator[NodeMessage]:
        """Yield it. The `last` time, lines that have no end yet come, too."""
        for path in sorted(self._directory.logs.glob("*.log")):
            own = path.stem in ("supervisor", "zygote")
            name = f"{path.stem}.{self._host}" if own else path.stem
            while text := self._more(path, last=last):
                yield LogPart(replica=name, text=text)
        while text := self._more(self._directory.progress, last=False):
            yield from (ProgressLine(line=line) for line in text.splitlines())
        bare = msgspec.structs.replace(status, progress=None)
        if bare != self._status:
            self._status = bare
            yield NodeStatus(host=self._host, status=bare, unheard=(self._directory.path / LEARNER_LOST).exists())

    def _more(self, path: Path, *, last: bool) -> str:
        """Return the whole lines that a file has more, or 64 KiB of a longer one."""
        try:
            chunk, begin = read_from(path, self._read.get(path, 0), _MOST_READ)
        except OSError:
            return ""
        end = len(chunk) if last or len(chunk) == _MOST_READ else chunk.rfind(b"\n") + 1
        self._read[path] = begin + end
        return chunk[:end].decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
