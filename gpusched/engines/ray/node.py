"""One node of a group on Ray, as the driver sees it: a thread that has it do its part, again if it is lost."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from gpusched.engines.base import Seen
from gpusched.engines.cluster.node_environment import submitters
from gpusched.engines.cluster.node_recorder import NodeRecorder
from gpusched.engines.ray.group_state import RayGroupState
from gpusched.engines.ray.node_actor import file_mark
from gpusched.engines.ray.requirements import require_secret
from gpusched.errors import GpuschedError, HostFault
from gpusched.execution.spec import Backoff
from gpusched.interpreter import module_options
from gpusched.joining.tcp import Tcp
from gpusched.model.cluster_job import NodeOrder
from gpusched.model.status import JobState
from gpusched.supervisor.restart import delay_s, row_after

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RayNode"]

_NODE: Final = "gpusched.engines.cluster.node"
_POLL_EVERY_S: Final = 0.5
_ANSWERS_WITHIN_S: Final = 60.0
_FIRST_WORD_S: Final = 60.0  # the file server may be slow, and all nodes start at once
_RAYS: Final = (
    "RAY_",
    "SLURM_",
)  # where Ray itself runs in a job of Slurm, these name more devices than Ray hands over

Ending = Literal["succeeded", "failed", "lost"]


class Place(NamedTuple):
    """Where a part is to run; see NodeActor.place."""

    host: str
    address: str
    port: int
    asks_for_token: bool
    mark: tuple[int, int] | None


class RayNode(threading.Thread):
    """Has node `order.number` do its part until that has ended by itself, or the group has.

    `make_keeper` starts a NodeActor in the node's bundle. The order's incarnation is that before the first. The end
    of the first node's part is that of the group. Any other is started again if it was lost; one that has ended by
    itself, because its learner did or its replicas have used up their restarts, waits for another learner.
    """

    def __init__(self, order: NodeOrder, group_state: RayGroupState, make_keeper: "Callable[[], Any]") -> None:
        super().__init__(name=f"node {order.number}", daemon=True)
        self._order, self._group_state, self._make_keeper = order, group_state, make_keeper
        self._keeper: Any = None
        self._learner_count = 0

    def run(self) -> None:
        """See the class."""
        row = 0
        while self._group_state.ended is None:
            self._order = msgspec.structs.replace(self._order, incarnation=self._order.incarnation + 1)
            began = time.monotonic()
            ending, message = self._attempt()
            if self._group_state.ended is None:
                self._log(f"{ending}{f': {message}' if message else ''}")
            if self._order.number == 0 and ending != "lost":
                self._group_state.end(
                    Seen(state=JobState.SUCCEEDED if ending == "succeeded" else JobState.FAILED, message=message)
                )
            if ending == "lost":
                row = row_after(Backoff(), row, time.monotonic() - began)
                self._group_state.pause(delay_s(Backoff(), row))
                row += 1
                continue
            if ending == "failed":
                self._group_state.give_up(self._order.number, self._learner_count, message)
            if not self._group_state.other_learner(self._learner_count):
                return

    def _attempt(self) -> tuple[Ending, str]:
        try:
            return self._once()
        except GpuschedError as error:
            if not self._group_state.has_run:
                self._group_state.end(Seen(state=JobState.FAILED, message=str(error)))
            return ("failed" if self._order.number == 0 else "lost"), str(error)
        except GetTimeoutError:
            return "lost", "it was silent for too long"
        except (RayError, OSError, ValueError) as error:
            return "lost", str(error).strip().partition("\n")[0]

    def kill(self) -> None:
        """End its process at once."""
        if self._keeper is not None:
            _kill(self._keeper)

    def _once(self) -> tuple[Ending, str]:
        self._keeper = keeper = self._make_keeper()
        try:
            place = self._placed(keeper)
            if place is None:
                return "lost", ""
            require_secret(
                place.host, place.address, ray.util.get_node_ip_address(), asks_for_token=place.asks_for_token
            )
            learner = self._learner(place)
            if learner is None:
                return "lost", ""
            self._learner_count = self._group_state.learners
            return self._run_part(keeper, place, msgspec.structs.replace(self._order, learner=learner))
        finally:
            if self._order.number == 0:
                self._group_state.lose_learner()
            _kill(keeper)

    def _placed(self, keeper: Any) -> Place | None:
        """Wait until Ray has room for the node, and has started its keeper there; None if the group ends meanwhile."""
        placed = keeper.place.remote(str(self._spec_file()))
        while self._group_state.ended is None:
            if ray.wait([placed], timeout=_POLL_EVERY_S)[0]:
                return Place(*ray.get(placed))
        return None

    def _learner(self, place: Place) -> str | None:
        if self._order.number:
            return self._group_state.learner()
        if place.mark is None or place.mark != file_mark(str(self._spec_file())):
            self._log(f"what the learner leaves stays on {place.host}, which shares no {self._order.directory} with us")
        endpoint = Tcp(place.address, place.port).endpoint
        self._group_state.begin_learner(endpoint)
        return endpoint

    def _run_part(self, keeper: Any, place: Place, order: NodeOrder) -> tuple[Ending, str]:
        argv = [order.group.python, *module_options(order.group.cwd), _NODE]
        environ = {name: value for name, value in submitters(os.environ).items() if not name.startswith(_RAYS)}
        with NodeRecorder(Path(order.directory), order.number, order.incarnation) as ledger:
            try:
                line = msgspec.json.encode(order) + b"\n"
                patience_s = float(order.group.patience_s)
                ray.get(keeper.start.remote(argv, environ, line, patience_s), timeout=_ANSWERS_WITHIN_S)
            except RayTaskError as error:  # of what was raised there
                raise HostFault(f"{place.host}: {error.cause}", "this Python must be on each node of Ray") from None
            self._log(f"runs on {place.host}, {place.address}, incarnation {order.incarnation}")
            with self._group_state.part(order.number, order.learner, keeper.send.remote):
                self._receive(keeper, ledger)
            state, failed, refused = ledger.state, ledger.failed, ledger.refused
        if refused is not None:
            return ("lost" if order.number or refused.yet else "failed"), refused.message
        if state is JobState.SUCCEEDED:
            return "succeeded", ""
        if state is JobState.FAILED:
            return ("failed" if failed else "lost"), f"its part of the job failed on {place.host}"
        if state is JobState.CANCELLED:  # for another learner, or by a user on the node
            return "lost", "it was asked to end"
        code, complaints = ray.get(keeper.ended.remote(), timeout=_ANSWERS_WITHIN_S)
        if code < 0:
            return "lost", f"killed by signal {-code}"
        why = complaints.rpartition("\n")[2] or f"exit code {code}"
        return ("lost" if order.number else "failed"), why  # a node that ends without a message will not fare better

    def _receive(self, keeper: Any, ledger: NodeRecorder) -> None:
        """Record the node's messages until it ends. Raises RayError, too for a node that falls silent.

        Ray may take longer to give up a node than the node to give up the learner.
        """
        patience = max(float(self._order.group.patience_s), _FIRST_WORD_S)
        since = time.monotonic()
        while (
            chunk := ray.get(keeper.receive.remote(), timeout=max(0.1, since + patience - time.monotonic()))
        ) is not None:
            if chunk:
                since, patience = time.monotonic(), float(self._order.group.patience_s)
                ledger.feed(chunk)

    def _spec_file(self) -> Path:
        return Path(self._order.directory) / "spec.json"

    def _log(self, text: str) -> None:
        print(f"node {self._order.number}: {text}", flush=True)


def _kill(keeper: Any) -> None:
    with suppress(RayError):  # it is gone, or Ray is
        ray.kill(keeper)
