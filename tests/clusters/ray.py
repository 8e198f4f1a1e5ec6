"""A real Ray on one machine: three nodes in network namespaces, and its head without resources on the login host.

All is under one directory, nothing is in ~/.ray, and everything is ended by pid: `ray stop` would end any other Ray.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clusters.hosts import LOGIN, Node, free_port, nodes_on_a_bridge

__all__ = ["RayCluster", "ray_of_three"]

_STARTS_WITHIN_S: Final = 240.0
_TRIES: Final = 5
_RAYS_OWN_TIMEOUT: Final = "timed out"
_ENDS_WITHIN_S: Final = 15.0
_STARTED: Final = "Ray runtime started"
_HANDED: Final = (2, 3)
_GIVES_UP_SOON: Final = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""A node that was cut off is given up after 20 s instead of 70, one that is killed at once."""


class RayCluster:
    """The cluster in `base`, a short path. `environ` is what a driver on the login host needs.

    Each node has GPUs 2 and 3 for it, as one does that keeps its others for something else.
    """

    def __init__(self, base: Path, nodes: Sequence[Node]) -> None:
        self.base, self.nodes, self.address = base, nodes, f"{LOGIN}:{free_port()}"
        self._token = base / "token"
        self.environ = {"RAY_ADDRESS": self.address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self._token)}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the head, and then the nodes one after the other: two at once would both make the session's files."""
        self._token.touch(mode=0o600)
        self._token.write_text(secrets.token_hex(16))
        head = [
            "--head",
            f"--port={self.address.rpartition(':')[2]}",
            "--include-dashboard=false",
            f"--ray-client-server-port={free_port()}",
            f"--temp-dir={self.base / 't'}",
        ]
        self._start("head", LOGIN, [*head, "--num-cpus=0", "--num-gpus=0"])
        for node in self.nodes:
            self.start_node(node)

    def start_node(self, node: Node) -> None:
        """Start a node's daemons: it has 8 CPUs and two GPUs, in Ray's reckoning."""
        sizes = ["--num-cpus=8", f"--num-gpus={len(_HANDED)}"]
        self._start(node.name, node.address, [f"--address={self.address}", *sizes], node)

    def kill_node(self, node: Node) -> None:
        """Kill all that runs on a node, as a power failure would."""
        for pid in node.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_head(self) -> None:
        """Kill the daemons on the login host."""
        os.killpg(self._started["head"].pid, signal.SIGKILL)

    def stop(self) -> None:
        """End everything."""
        for process in self._started.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        deadline = time.monotonic() + _ENDS_WITHIN_S
        for process in self._started.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for node in self.nodes:
            self.kill_node(node)

    def _start(self, name: str, address: str, words: Sequence[str], node: Node | None = None) -> None:
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={address}"]
        sizes = ["--memory=2000000000", "--object-store-memory=80000000", "--disable-usage-stats"]
        for _ in range(_TRIES):
            said = self._started_once(name, [*ray, *sizes, *words], node)
            if _STARTED in said:
                return
            assert _RAYS_OWN_TIMEOUT in said.lower(), f"{name} does not start: {said}"
        raise AssertionError(f"{name} does not start, {_TRIES} times: {said}")

    def _started_once(self, name: str, argv: Sequence[str], node: Node | None) -> str:
        """Return what Ray prints until it has started or given up: its own patience is short for a busy host."""
        log = self.base / f"{name}.log"
        with log.open("wb") as output:
            options: dict[str, Any] = {"env": self._env(name), "stdout": output, "stderr": subprocess.STDOUT}
            if node is None:
                process = subprocess.Popen(argv, start_new_session=True, **options)
            else:
                process = node.start(*argv, **options)
        self._started[name] = process
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while _STARTED not in (said := log.read_text(errors="replace")) and process.poll() is None:
            assert time.monotonic() < deadline, f"{name} does not start: {said}"
            time.sleep(0.1)
        if process.poll() is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it had started of its daemons
        return log.read_text(errors="replace")

    def _env(self, name: str) -> Mapping[str, str]:
        ours = {"GPUSCHED_RUNTIME_DIR": str(self.base / name), "GPUSCHED_LEASE_DIR": str(self.base / f"{name}.leases")}
        own = ours | {"XDG_RUNTIME_DIR": str(self.base), "HOME": str(self.base), "RAY_USAGE_STATS_ENABLED": "0"}
        own["RAY_memory_monitor_refresh_ms"] = "0"  # it would kill what it finds on a host that other tests fill
        own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, _HANDED))
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSCHED_", "RAY_"))}
        return bare | self.environ | _GIVES_UP_SOON | own


@contextlib.contextmanager
def ray_of_three(base: Path) -> Iterator[RayCluster]:
    """Yield a running cluster in the directory `base`, or skip with the reason."""
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'ray>=2.52'")
    with nodes_on_a_bridge() as nodes:
        cluster = RayCluster(base, nodes)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
