"""An engine for a cluster whose nodes are processes of this host: what it takes to add one."""

import os
import subprocess
import sys
from collections.abc import Mapping
from threading import Thread

import msgspec

from gpusched import runtime
from gpusched.engines.base import Seen
from gpusched.engines.cluster.keyring import fresh_keys, order_of
from gpusched.engines.cluster.node_environment import submitters
from gpusched.engines.cluster.node_recorder import NodeRecorder, announce
from gpusched.engines.cluster.wait import Requests, report_end, telling, wait_for_engine
from gpusched.engines.registry import ClusterEngine, EngineOption
from gpusched.errors import HostFault, UsageError
from gpusched.execution.directory import JobDirectory
from gpusched.model.cluster_job import ClusterJob, NodeOrder, Own
from gpusched.model.status import JobState
from gpusched.settings import places
from tests.ports import free_port


def _checked(own: Own, _: Mapping[str, str]) -> Own:
    if own.get("rack", ("a",))[0] not in ("a", "b"):
        raise UsageError(f"--rack: there is no rack {own['rack'][0]}", "give a or b")
    return {"rack": ("a",), **own}


def _require_power(job: ClusterJob) -> None:
    if job.own["rack"] == ("b",):
        raise HostFault("rack b has no power", "give --rack a")


ENGINE = ClusterEngine(
    module="tests.engines.toy_engine",
    options={"rack": EngineOption(help="Of toy: a or b.", metavar="RACK", elsewhere="is in the room of toy")},
    checked=_checked,
    require_now=_require_power,
    needs=lambda job: f"rack {job.own['rack'][0]}",
)


class Toy:
    def __init__(self, directory: JobDirectory, job: ClusterJob) -> None:
        self._directory, self._job = directory, job
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._recorders: list[Thread] = []

    def submit(self) -> None:
        announce(self._directory, self._job)
        learner = f"tcp://127.0.0.1:{free_port()}"
        name, path = self._directory.path.name, str(self._directory.path)
        whole = NodeOrder(
            group=self._job, job=name, directory=path, number=0, learner=learner, incarnation=1, keys=fresh_keys(name)
        )
        for number in range(len(self._job.nodes)):
            argv = [self._job.python, "-m", "gpusched.engines.cluster.node"]
            pipe, env = subprocess.PIPE, submitters(os.environ) | places(os.environ)
            self._nodes.append(subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=env))
            self._send(msgspec.json.encode(order_of(whole, number)), number)
            self._recorders.append(Thread(target=self._record, args=(number,)))
            self._recorders[-1].start()

    def poll(self) -> Seen:
        if any(node.poll() is None for node in self._nodes) or any(one.is_alive() for one in self._recorders):
            return Seen(state=JobState.RUNNING, message=f"rack {self._job.own['rack'][0]} hums")
        return Seen(
            state=JobState.FAILED if self._nodes[0].returncode else JobState.SUCCEEDED, message="the rack is empty"
        )

    def cancel(self, *, kill: bool) -> bool:
        for number in range(len(self._nodes)):
            self._send(b"kill" if kill else b"stop", number)
        return True

    def _send(self, line: bytes, number: int) -> None:
        stdin = self._nodes[number].stdin
        assert stdin is not None
        stdin.write(line + b"\n")
        stdin.flush()

    def _record(self, number: int) -> None:
        stdout = self._nodes[number].stdout
        assert stdout is not None
        with NodeRecorder(self._directory.path, number, 1) as recorder:
            recorder.receive(stdout.fileno(), self._job.patience_s)


def main() -> int:
    directory = JobDirectory(runtime.current_replica().run_dir)
    requests, engine = Requests(), Toy(directory, runtime.settings(ClusterJob))
    engine.submit()
    ended = wait_for_engine(engine, requests, telling(directory.path))
    report_end(directory.path, ended.message)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
