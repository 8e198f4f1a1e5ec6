"""A real Prometheus reads the server's numbers, as docs/web.md shows."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.patience import PATIENCE_S, until
from tests.ports import free_port
from tests.web.server import Server

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: gpusched
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
    authorization: {{credentials_file: {secret}}}
"""


class Prometheus:
    """Prometheus in a process of its own, which reads that server."""

    def __init__(self, folder: Path, port: int, secret: Path) -> None:
        folder.mkdir()
        (folder / "prometheus.yml").write_text(CONFIGURATION.format(port=port, secret=secret))
        self.port = free_port()
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        argv = [str(PROMETHEUS), *options, f"--web.listen-address=127.0.0.1:{self.port}"]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)

    def values(self, query: str) -> list[dict[str, Any]]:
        """What a query finds now: labels and value of each series; nothing before it serves."""
        try:
            with urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/query?{urlencode({'query': query})}", timeout=PATIENCE_S
            ) as found:
                answer = json.loads(found.read())
        except (URLError, OSError):
            return []
        return [one["metric"] | {"value": one["value"][1]} for one in answer["data"]["result"]]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def prometheus(serve: Callable[..., Server], tmp_path: Path) -> Iterator[tuple[Server, Prometheus]]:
    secret = tmp_path / "secret"
    server = serve("--metrics-token", str(secret))
    server.address()
    found = Prometheus(tmp_path / "prometheus", server.port, secret)
    yield server, found
    found.end()


def test_prometheus_has_devices_and_the_series_of_a_job_only_while_it_lives(
    prometheus: tuple[Server, Prometheus],
) -> None:
    server, reader = prometheus
    until(lambda: len(reader.values("gpusched_device_utilization_ratio")) == 2, "both devices are there")
    assert {one["value"] for one in reader.values("gpusched_device_utilization_ratio")} == {"0", "0.37"}
    assert [one["value"] for one in reader.values("up")] == ["1"]
    command = ("run", "-d", "--fraction", "0.5", "--name", 'a "name"', "--", "sleep", "600")
    assert server.command.run(*command).returncode == 0
    until(lambda: reader.values('gpusched_job_info{job_id="run-1"}'), "the job is there")
    (info,) = reader.values('gpusched_job_info{job_id="run-1"}')
    assert info["name"] == 'a "name"'
    assert "exported_job" not in info, "no label has a name that Prometheus gives itself"
    (share,) = reader.values('gpusched_replica_memory_share_bytes{job_id="run-1"}')
    assert int(float(share["value"])) > 7_000 << 20
    assert server.command.run("stop", "--kill", "run-1").returncode == 0
    until(lambda: not reader.values('{job_id="run-1"}'), "the series of what has ended are gone")
