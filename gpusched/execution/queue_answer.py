"""What the daemon knows of this moment and nothing else does: the jobs that wait, and who is idle."""

import time
from typing import Final, NamedTuple

import msgspec

from gpusched.errors import GpuschedError
from gpusched.execution.listing import queue_stamp, waiting_on_disk
from gpusched.linux.processes import began
from gpusched.model.device import DeviceProcess, Inventory
from gpusched.model.idle import Idle
from gpusched.model.status import JobStatus
from gpusched.settings import Settings

__all__ = ["QUEUE_PATIENCE_S", "QueueAnswer", "QueueReader", "ask_queue", "with_idle"]

QUEUE_PATIENCE_S: Final = 1.0
"""How long the daemon may take for its answer."""

_KEPT_S: Final = 5.0
"""How long an answer may be used: the reason why a job waits, and who is idle, change without a change of the queue."""

_SETTLED_S: Final = 3.0
"""How long after a change of the queue the daemon has found why each job waits; its passes are 2 s apart at most."""


class QueueAnswer(NamedTuple):
    """The jobs that live, the arrays that ended within the last hour, and who is idle.

    `problem`: why the daemon did not answer. `listens`: one runs.
    """

    jobs: tuple[JobStatus, ...]
    problem: str | None = None
    idle: Idle = Idle()
    listens: bool = True


def with_idle(inventory: Inventory, idle: Idle) -> Inventory:
    """Return the inventory with the processes marked that hold memory and do nothing."""
    since = {(one.device_uuid, one.pid): one.since for one in idle.processes}
    if not since:
        return inventory
    devices = tuple(
        msgspec.structs.replace(
            device, processes=tuple(_marked(each, since.get((device.uuid, each.pid))) for each in device.processes)
        )
        for device in inventory.devices
    )
    return msgspec.structs.replace(inventory, devices=devices)


def _marked(process: DeviceProcess, since: float | None) -> DeviceProcess:
    if since is None:
        return process
    return msgspec.structs.replace(process, idle_since=since, began=began(process.pid))


def ask_queue(settings: Settings) -> QueueAnswer:
    """Return the jobs that live and late arrays as the daemon lists them, else what seems to wait; and its problem."""
    from gpusched.control.place import control_socket, listener

    try:
        if listener(control_socket(settings)) is None:
            return QueueAnswer(waiting_on_disk(settings), listens=False)
        from gpusched.control.client import Client
        from gpusched.control.messages import Jobs, ListJobs

        with Client(settings) as client:
            answer = client.ask(ListJobs(ended=0, ended_arrays=True), QUEUE_PATIENCE_S)
    except GpuschedError as error:
        return QueueAnswer(waiting_on_disk(settings), error.message)
    return QueueAnswer(answer.jobs, idle=answer.idle or Idle()) if isinstance(answer, Jobs) else QueueAnswer(())


class QueueReader:
    """Asks as ask_queue, again and again; while the queue stays as it is, the daemon is asked each 5 s only.

    With thousands of jobs, an answer costs the daemon some 10 ms.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._answer = QueueAnswer(())
        self._stamp: object = None
        self._settled = self._until = 0.0

    def __call__(self) -> QueueAnswer:
        """Return the answer. One is used again only while a daemon runs, and only if it came from one."""
        from gpusched.control.place import is_locked

        now, stamp = time.monotonic(), queue_stamp(self._settings)
        if stamp != self._stamp:
            self._stamp, self._settled, self._until = stamp, now + _SETTLED_S, now
        if now >= self._until or not is_locked(self._settings):
            self._answer = ask_queue(self._settings)
            answered = self._answer.listens and self._answer.problem is None
            self._until = now + _KEPT_S if answered and now >= self._settled else now
        return self._answer
