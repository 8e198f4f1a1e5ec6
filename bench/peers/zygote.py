"""Ours without a command around it: a zygote that forks on, so that the second start finds it warm."""

import os
import select
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from bench.fresh import ROOT
from bench.peers.ready import SOCKET
from gpusched.environment import child_environment, resource_environment
from gpusched.execution.spec import Start
from gpusched.frameworks.jax import fraction_variable
from gpusched.linux.processes import become_subreaper
from gpusched.model.plan import Replica, ReplicaSpec
from gpusched.zygote.client import ZygoteClient, ZygoteState

__all__ = ["Zygote"]

_TURN_S: Final = 1.0
_TOGETHER: Final = 8  # as many as a supervisor has forked together


class Zygote:
    """Starts processes as the supervisor of a job does whose workload has `preload`. See starting.Way."""

    belongs = True
    starts_again = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._preload = ZygoteClient(("tensorflow",))
        self._stack = ExitStack()
        self._started: list[int] = []

    def __enter__(self) -> Self:
        become_subreaper()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpusched-bench-")))
        self._stack.callback(self._preload.close)
        self._log = os.open(folder / "replicas.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._stack.callback(os.close, self._log)
        self._preload.start(os.environ, folder, str(ROOT), folder / "zygote.log")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, count: int) -> None:
        """Have so many forked, once all is imported. Exits if the zygote does not do that."""
        while self._preload.state is ZygoteState.LOADING:
            select.select([link for link in [self._preload.fileno()] if link is not None], [], [], _TURN_S)
            self._preload.receive()
        for first in range(0, count, _TOGETHER):
            for pid in self._preload.fork([self._start(rank) for rank in range(first, min(first + _TOGETHER, count))]):
                if pid is None:
                    sys.exit(f"the zygote forks nothing: {self._preload.steps()}")
                self._started.append(pid)

    def _start(self, rank: int) -> Start:
        replica = Replica(name=f"actor.{rank}", role="actor", rank=rank, cpus=tuple(os.sched_getaffinity(0)))
        own = resource_environment(replica, fraction_variable(None)) | {SOCKET: self._path}
        argv = (sys.executable, "-m", "bench.peers.ready")
        spec = ReplicaSpec(replica=replica, argv=argv, env=own, cwd=str(ROOT))
        env = child_environment(os.environ, own)
        return Start(spec=spec, env=env, streams=(self._log, self._log, self._log))

    def join(self) -> None:
        """Wait for them."""
        for pid in self._started:
            os.waitpid(pid, 0)
        self._started.clear()
