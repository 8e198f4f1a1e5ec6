"""The nodes of a group as a job of one host: each is a process that has a node do its part, and is restarted like any.

Its first replica has the node with the learner and leads; when it ends, the others are ended. `node.2` has node 3. Such
a process records the messages of its node until that ends, and ends in the same way. By a signal if it is to be started
again: it was lost, or another user ended it. A node that ended by itself, because the learner is over or its replicas
have used up their restarts, waits for another learner, and has failed once a role is gone on all nodes.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from gpusched import runtime
from gpusched.engines.cluster.keyring import order_of
from gpusched.engines.cluster.node_recorder import NodeRecorder
from gpusched.errors import GpuschedError, HostFault
from gpusched.execution.nodes import read_node, read_nodes, role_that_failed
from gpusched.interpreter import module_options
from gpusched.linux.files import make_private, replace_file
from gpusched.model.cluster_job import ClusterJob, NodeOrder
from gpusched.model.status import JobState
from gpusched.model.workload import Restart, Role, Workload

__all__ = ["PER_ATTEMPT", "StepSettings", "end_like", "my_order", "steps_workload", "write_order"]

PER_ATTEMPT: Final = 10_000
"""Incarnations of a node in one attempt of a whole group: a later attempt's are all higher."""

_FIRST: Final = "first"
_ALWAYS_AGAIN: Final = 1_000_000
_POLL_EVERY_S: Final = 1.0


class StepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`order`: the file with the nodes' order, readable by this user alone, as it holds keys."""

    order: str


def steps_workload(group: ClusterJob, job: str, module: str) -> Workload:
    """Return what runs `module` once for each node of the group."""
    command = ("{python}", *module_options(group.cwd), module)
    first = Role(name=_FIRST, command=command, restart=Restart(policy="on-signal", max=_ALWAYS_AGAIN), low_cpu=True)
    others = Role(
        name="node",
        command=command,
        count=len(group.nodes) - 1,
        restart=Restart(policy="on-signal", max=_ALWAYS_AGAIN),
        low_cpu=True,
    )
    grace = group.workload.stop_grace_s + 10
    return Workload(name=job.rpartition("-")[0], roles=(first, others), leader=_FIRST, stop_grace_s=grace)


def write_order(path: Path, order: NodeOrder) -> None:
    """Leave the nodes' order for this user's processes. Raises HostFault."""
    try:
        make_private(path.parent)
        replace_file(path, msgspec.json.encode(order))
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "see that the runtime directory is writable") from None


def my_order(environ: Mapping[str, str] | None = None) -> NodeOrder:
    """Return the order for this process's node. Raises NotLaunched, HostFault."""
    me, settings = runtime.current_replica(environ), runtime.settings(StepSettings, environ)
    try:
        order = msgspec.json.decode(Path(settings.order).read_bytes(), type=NodeOrder)
    except (OSError, msgspec.MsgspecError) as error:
        raise HostFault(f"{settings.order}: {error}", "launch the job again") from None
    mine = order_of(order, 0 if me.role == _FIRST else me.rank + 1)
    return msgspec.structs.replace(mine, incarnation=order.incarnation + me.attempt + 1)


def end_like(order: NodeOrder, node: int, end: Callable[[], None], asked: Callable[[], bool]) -> NoReturn:
    """Record the messages of the node in the pipe `node` until it ends, and end as it did; see the module.

    It is lost if it left no last message, or was silent for as long as it would wait for the learner. `end` ends before
    that what was started for it here; `asked` returns whether this process was asked to end. The exit code of the
    command that started it there does not count: srun's is 0 after a failure of the node.
    """
    learner = _learner_attempt(order)
    with NodeRecorder(Path(order.directory), order.number, order.incarnation) as ledger:
        answered = ledger.receive(node, order.group.patience_s)
        state, failed = ledger.state, ledger.failed
    if not answered:
        print(f"the node was silent for {order.group.patience_s} s", flush=True)
    end()
    is_first, refused = order.number == 0, ledger.refused
    if refused is not None:
        print(refused.message, file=sys.stderr, flush=True)
        if is_first and not refused.yet:
            sys.exit(HostFault.exit_code)
    elif answered and state is JobState.SUCCEEDED:
        if is_first or _is_over(order, learner, asked):
            sys.exit(0)
    elif answered and failed:
        if is_first or _is_over(order, learner, asked):
            sys.exit(GpuschedError.exit_code)
    elif answered and state is JobState.CANCELLED and is_first:
        sys.exit(GpuschedError.exit_code)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _is_over(order: NodeOrder, learner: int, asked: Callable[[], bool]) -> bool:
    """Wait until this process is asked to end, or a role has failed on all nodes, for which the learner would wait.

    False once there is another learner than the one that this node served.
    """
    while not asked():
        if _learner_attempt(order) > learner:
            return False
        statuses = read_nodes(Path(order.directory))
        if len(statuses) == len(order.group.nodes) and role_that_failed(statuses):
            return True
        time.sleep(_POLL_EVERY_S)
    return True


def _learner_attempt(order: NodeOrder) -> int:
    """Return how often the learner's part was started before, in this attempt of the group or in all before it."""
    with suppress(OSError, msgspec.MsgspecError):
        status = read_node(Path(order.directory), 0).status
        if status.state is not JobState.QUEUED:
            return status.attempt
    return (order.incarnation - 1) // PER_ATTEMPT * PER_ATTEMPT
