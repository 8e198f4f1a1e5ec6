"""On a real GPU: a framework gets what its limit allows and no more, alone and beside another; its context is measured.

Run with `pytest -m gpu -s tests/gpu` to read the measured context, which is what the setting `context` stands for.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusched.environment import child_environment, resource_environment
from gpusched.execution.plan_options import xla_variable
from gpusched.model.plan import Replica
from gpusched.units import fraction_of, portion
from tests.gpu.conftest import RealDevice, used_mib

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

LIMIT_MIB = 2048
FRAMEWORKS = ["torch", "jax", "cupy", "tensorflow"]


class Filling:
    """One script that fills its share and then holds it until it is told to end."""

    def __init__(self, framework: str, device: RealDevice) -> None:
        replica = Replica(
            name="filler.0",
            role="filler",
            rank=0,
            device_uuid=device.uuid,
            limit_mib=LIMIT_MIB,
            fraction=fraction_of(LIMIT_MIB, device.total_mib),
        )
        layer = resource_environment(replica, xla_variable())
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "scripts" / f"fill_{framework}.py")],
            env=child_environment(os.environ, layer),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> dict[str, Any]:
        """Wait until the device's share is full; an empty line means that the script ended before."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the script ended with {self.process.wait()}"
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def fill(real_device: RealDevice) -> Iterator[Callable[[str], Filling]]:
    """Start a script that fills its share of the device; all are ended with the test."""
    started: list[Filling] = []

    def start(framework: str) -> Filling:
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
        started.append(Filling(framework, real_device))
        return started[-1]

    yield start
    for filling in started:
        filling.end()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_it_gets_its_limit_and_fails_above_it_and_so_does_a_second_one_beside_it(
    fill: Callable[[str], Filling], real_device: RealDevice, framework: str
) -> None:
    before = used_mib(real_device)
    first = fill(framework).told()
    alone = used_mib(real_device)
    second = fill(framework).told()
    both = used_mib(real_device)
    granted = portion(real_device.total_mib, fraction_of(LIMIT_MIB, real_device.total_mib))
    for told in (first, second):
        assert 0.9 * granted <= told["mib"] <= LIMIT_MIB, told
        assert told["pool_mib"] <= LIMIT_MIB, told
        assert "memory" in told["error"].lower(), told
    contexts = [alone - before - first["pool_mib"], both - alone - second["pool_mib"]]
    print(
        f"\n{framework} on {real_device.name}: limit {LIMIT_MIB} MiB, got {first['mib']} and {second['mib']} MiB, "
        f"pools {first['pool_mib']} and {second['pool_mib']} MiB, beside them {contexts[0]} and {contexts[1]} MiB"
    )
    assert all(context > 0 for context in contexts), (
        "a process takes more than its pool: that is why shares have a context"
    )
