"""`python -m gpusched.engines.ray.engine`: the engine `ray`, the one process of such a job on the submitting host.

It is a driver of Ray's: it reserves a bundle of resources on as many nodes as the group has, has a NodeActor
(node_actor.py) started in each, which runs that node's part as a child process, and receives the parts' messages
(node.py). Ray ends all of them when this process is gone; the supervisor then starts another one, for a new attempt.
The host must be a node of the cluster, as all drivers are on; it may be one without resources.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from gpusched import runtime
from gpusched.engines.base import Seen
from gpusched.engines.cluster.keyring import fresh_keys, order_of
from gpusched.engines.cluster.node_recorder import announce
from gpusched.engines.cluster.node_tasks import PER_ATTEMPT
from gpusched.engines.cluster.wait import Requests, report_end, telling, wait_for_engine
from gpusched.engines.ray import node_actor
from gpusched.engines.ray.group_state import RayGroupState
from gpusched.engines.ray.requirements import needs_of, needs_text, require_nodes
from gpusched.errors import GpuschedError, HostFault, exit_code_of
from gpusched.execution.directory import JobDirectory
from gpusched.model.cluster_job import ClusterJob, NodeOrder
from gpusched.model.status import JobState

__all__ = ["Ray", "main", "require_answer"]

_AT_THE_SAME_TIME: Final = 4  # a call of NodeActor.receive takes long, and `send` must work meanwhile
_KILLED_AFTER_S: Final = 15.0  # beyond the workload's own grace: a supervisor may have to kill, and reports it
_GONE_WITHIN_S: Final = 5.0
_ANSWERS_WITHIN_S: Final = 10.0
_COMES_BACK_WITHIN_S: Final = 120.0
_PAUSE_S: Final = 5.0


class Ray:
    """What runs the `group` for the job in `directory` on Ray, in its attempt number `attempt`; see Engine."""

    def __init__(self, directory: JobDirectory, group: ClusterJob, attempt: int) -> None:
        self._directory, self._group, self._attempt = directory, group, attempt
        self._group_state = RayGroupState(group.only_elsewhere)
        self._nodes: list[Any] = []

    def submit(self) -> None:
        """Connect, and have Ray make room for the nodes. Raises HostFault, and NeverFits for more than Ray has."""
        self._connect_again() if self._attempt else self._connect()
        import ray

        from gpusched.engines.ray.node import RayNode

        if self._attempt == 0:  # later a node may be away that will come back
            require_nodes(self._group, ray.nodes())
        announce(self._directory, self._group)
        make_keeper = self._reserve()
        job = self._directory.path.name
        order = NodeOrder(
            group=self._group,
            job=job,
            directory=str(self._directory.path),
            number=0,
            learner="",
            incarnation=self._attempt * PER_ATTEMPT,
            keys=fresh_keys(job),
        )
        for number in range(len(self._group.nodes)):
            self._nodes.append(RayNode(order_of(order, number), self._group_state, partial(make_keeper, number)))
        for node in self._nodes:
            node.start()

    def poll(self) -> Seen:
        """Return how the nodes are. What has ended is over once all of them are, or have been killed."""
        if not self._nodes[0].is_alive():  # it ends the group before it ends, unless by an internal error
            self._group_state.end(
                Seen(state=JobState.LOST, message="the thread of the first node has failed: see the log")
            )
        ended = self._group_state.ended
        if ended is None:
            if self._group_state.runs:
                return Seen(state=JobState.RUNNING)
            return Seen(state=JobState.QUEUED, message=f"waits for room on Ray: {needs_text(self._group)}")
        late = self._group_state.ends_for_s() - self._group.workload.stop_grace_s - _KILLED_AFTER_S
        alive = [node for node in self._nodes if node.is_alive()]
        if late > 0:
            for node in alive:
                node.kill()
        return ended if not alive or late > _GONE_WITHIN_S else Seen(state=JobState.RUNNING, message="its nodes end")

    def cancel(self, *, kill: bool) -> bool:
        """Have the nodes end their parts, in order or at once."""
        self._group_state.end(Seen(state=JobState.CANCELLED, message="cancelled"))
        if kill:
            self._group_state.hurry()
        return True

    def _connect_again(self) -> None:
        """Connect, with patience: after a reboot, or a failure of its head, Ray may not be up again yet."""
        deadline = time.monotonic() + _COMES_BACK_WITHIN_S
        while True:
            try:
                return self._connect()
            except HostFault as error:
                if time.monotonic() >= deadline:
                    raise
                print(error, file=sys.stderr, flush=True)
                time.sleep(_PAUSE_S)

    def _connect(self) -> None:
        import ray

        (address,) = self._group.own["address"]  # never None, with which Ray would start a new cluster
        require_answer(address)
        try:
            ray.init(
                address=address,
                namespace=f"gpusched-{self._directory.path.name}",
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            problem = str(error).strip().partition("\n")[0]
            hint = "this host must be a node of the cluster, if one without resources, and know its token"
            raise HostFault(f"Ray at {address}: {problem}", hint) from None

    def _reserve(self) -> Callable[[int], Any]:
        """Reserve a bundle a node, each on another; return what starts a NodeActor in one of them, once there is room.

        The NodeActor has all of its bundle, and Ray never starts it again by itself: a new one is another incarnation.
        """
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray.cloudpickle.register_pickle_by_value(node_actor)
        needs = needs_of(self._group)
        bundles = ray.util.placement_group([needs] * len(self._group.nodes), strategy="STRICT_SPREAD")
        kept = ray.remote(node_actor.NodeActor)

        def make_keeper(number: int) -> Any:
            return kept.options(
                num_cpus=needs["CPU"],
                num_gpus=needs.get("GPU", 0),
                max_restarts=0,
                max_concurrency=_AT_THE_SAME_TIME,
                scheduling_strategy=PlacementGroupSchedulingStrategy(bundles, number),
            ).remote(os._exit)  # Ray makes a process for each actor

        return make_keeper


def require_answer(address: str) -> None:
    """Raise HostFault where no process listens: Ray would try for minutes before it fails."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise HostFault(f"Ray at {address}: {error}", "is its head running? `ray start` prints its address") from None


def main() -> int:
    """Run the group of this job's settings to its end; see the module."""
    me = runtime.current_replica()
    directory = JobDirectory(me.run_dir)
    try:
        engine = Ray(directory, runtime.settings(ClusterJob), me.attempt)
        engine.submit()
        requests = Requests()  # after Ray has installed its handler
        ended = wait_for_engine(engine, requests, telling(directory.path))
    except (GpuschedError, OSError) as error:
        report_end(directory.path, str(error))
        return exit_code_of(error)
    report_end(directory.path, ended.message)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
