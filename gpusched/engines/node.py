"""One node's part of a job on a cluster: `python -m gpusched.engines.node`, which the cluster starts, one a node.

The first line of its standard input tells what to run (NodeOrder). It runs it as a job of this host, with a plan,
leases, a supervisor and restarts like any other, and tells on its standard output how that goes (Told). Each further
line, the end of its input, and SIGTERM ask it to end: the first in order, the next at once. Exit code: 0 the part
succeeded, 1 it did not, else that of the error (errors.py).
"""

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Final

import msgspec

from gpusched.engines.attend import Requests, attend
from gpusched.engines.local import Asked, Local
from gpusched.engines.wish import Wish
from gpusched.errors import GpuschedError, HostFault
from gpusched.files import make_private, replace_file
from gpusched.model.group import LogPart, NodeOrder, NodeStatus, ProgressLine, Refused, Told
from gpusched.model.job import Listening, Member, Part
from gpusched.model.status import JobStatus
from gpusched.model.workload import Workload
from gpusched.probe.host import host_name
from gpusched.settings import Settings, load_settings
from gpusched.supervisor.hosts import FIRST_KEY, KEYS
from gpusched.supervisor.jobdir import JobDirectory, complete
from gpusched.supervisor.nodes import learner_directory
from gpusched.supervisor.tcp import Tcp

__all__ = ["asked_of", "main", "workload_of"]

_MOST_READ: Final = 1 << 16
_HANDED: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
"""Which devices a cluster hands over, the surest first: under Slurm with ConstrainDevices CUDA counts anew from 0."""


def main() -> int:
    """Run the part that is told; see the module."""
    requests = Requests()
    try:
        words = os.fdopen(os.dup(0), "rb", buffering=0)  # unbuffered: a thread that reads it must not hold up the end
        order = msgspec.json.decode(words.readline(), type=NodeOrder)
        threading.Thread(target=_hear, args=(words, requests), daemon=True).start()
        return _run(order, load_settings(os.environ), requests)
    except msgspec.MsgspecError as error:
        print(f"this is no order to a node: {error}", file=sys.stderr)
        return HostFault.exit_code
    except GpuschedError as error:
        _say(iter([Refused(words=f"{host_name()}: {error}")]))
        return error.exit_code


def workload_of(order: NodeOrder) -> Workload:
    """Return the workload with as many replicas as this node has of each role; without the leader, nobody leads."""
    whole, share = order.group.workload, order.group.nodes[order.number]
    roles = tuple(msgspec.structs.replace(role, count=share.counts.get(role.name, 0)) for role in whole.roles)
    leads = whole.leader is not None and share.counts.get(whole.leader, 0) > 0
    return msgspec.structs.replace(whole, roles=roles, leader=whole.leader if leads else None)


def asked_of(order: NodeOrder, keys: Path, handed: str | None) -> Asked:
    """Return the part as a job of this host; its key files are in `keys`, and `handed` names its devices."""
    group = order.group
    network: Listening | Member
    if order.number == 0:
        everywhere = Tcp("0.0.0.0", Tcp.parse(order.learner, "the learner").port)  # noqa: S104 (by CURVE keys only)
        network = Listening(endpoint=everywhere.endpoint, incarnation=order.incarnation)
    else:
        network = Member(
            endpoint=order.learner,
            job=order.job,
            key=str(keys / f"{FIRST_KEY}.key"),
            incarnation=order.incarnation,
            patience_s=group.patience_s,
        )
    return Asked(
        workload=workload_of(order),
        options=group.options.encode(),
        wish=Wish(
            machine=None if group.gpus else "cpu",
            gpus=handed if group.gpus else None,
            learner_memory=group.learner_memory,
            actor_memory=group.actor_memory,
            policy=group.policy,
        ),
        network=network,
        part=Part(
            job=order.job,
            first=group.nodes[order.number].first,
            counts=group.counts,
            attempt=order.incarnation - 1,
        ),
    )


def _run(order: NodeOrder, settings: Settings, requests: Requests) -> int:
    os.chdir(order.group.cwd)
    directory = JobDirectory(_place(order, settings))
    make_private(directory.path)
    complete(directory)
    keys = directory.path / KEYS
    make_private(keys)
    for name, held in order.keys.items():
        replace_file(keys / name, held.encode())
    handed = next((os.environ[name] for name in _HANDED if os.environ.get(name)), None)
    if order.group.gpus and handed is None:
        told = f"{order.group.gpus} GPUs were asked for, and none of {', '.join(_HANDED)} names one"
        raise HostFault(told, "ask who runs the cluster: its GPUs must be a generic resource (gres) called gpu")
    engine = Local(directory, asked_of(order, keys, handed), settings)
    news = _News(directory)
    try:
        engine.submit()
        seen = attend(engine, requests, lambda _: _say(news.since(engine.status())))
        _say(news.since(engine.status()))
        return 0 if seen.stage == "succeeded" else GpuschedError.exit_code
    finally:
        if order.number:
            shutil.rmtree(directory.path.parent, ignore_errors=True)


def _place(order: NodeOrder, settings: Settings) -> Path:
    """Return where the part has its files: the learner's beside the job's own, the others' on this node alone.

    What the learner leaves must outlast this node, and no second learner may write there: the directory's lock is kept
    by whoever does. The others must be able to end when the file server cannot be reached.
    """
    if order.number == 0:
        return learner_directory(Path(order.directory))
    mark = hashlib.sha256(os.fsencode(order.directory)).hexdigest()[:8]
    return settings.runtime_dir / "nodes" / f"{mark}.{order.number}.{order.incarnation}" / order.job


def _hear(words: RawIOBase, requests: Requests) -> None:
    """Count what further asks for an end. Nobody at the other end of the pipe is one who asks."""
    while words.readline():
        requests.count += 1
    requests.count += 1


def _say(told: Iterator[Told]) -> bool:
    """Write lines, an empty one at the end; return whether anybody can read them: else this node belongs to no job."""
    try:
        for one in told:
            sys.stdout.buffer.write(msgspec.json.encode(one) + b"\n")
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    except (BrokenPipeError, ValueError):
        return False
    return True


class _News:
    """What is new since it was asked last: the status if it changed, and what was added to logs and progress file."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory, self._host = directory, host_name()
        self._status: JobStatus | None = None
        self._read: dict[Path, int] = {}

    def since(self, status: JobStatus) -> Iterator[Told]:
        """Yield it."""
        for path in sorted(self._directory.logs.glob("*.log")):
            own = path.stem in ("supervisor", "zygote")
            name = f"{path.stem}.{self._host}" if own else path.stem
            while text := self._more(path):
                yield LogPart(replica=name, text=text)
        while text := self._more(self._directory.progress):
            yield from (ProgressLine(line=line) for line in text.splitlines())
        bare = msgspec.structs.replace(status, progress=None)
        if bare != self._status:
            self._status = bare
            yield NodeStatus(host=self._host, status=bare)

    def _more(self, path: Path) -> str:
        """Return the whole lines that a file has more, or 64 KiB of a longer one."""
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                chunk = file.read(_MOST_READ)
        except OSError:
            return ""
        end = len(chunk) if len(chunk) == _MOST_READ else chunk.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + end
        return chunk[:end].decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
