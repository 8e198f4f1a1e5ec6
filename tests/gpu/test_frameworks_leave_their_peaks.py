"""On a real GPU: what a framework counts itself is left by an unchanged program, at its end and if it is killed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched.environment import child_environment, resource_environment
from gpusched.execution.framework_peaks import ReplicaPeaks, read_peaks
from gpusched.execution.plan_options import xla_variable
from gpusched.model.plan import Replica
from gpusched.units import fraction_of
from tests.gpu.conftest import RealDevice
from tests.patience import PATIENCE_S, until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

LIMIT_MIB = 2048
TAKEN_MIB = 256
SAMPLED = """
import runpy, sys
import gpusched.frameworks.recorder as recorder
recorder.PAUSE_S = 0.1
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def start(framework: str, device: RealDevice, run_dir: Path, *options: str) -> "subprocess.Popen[str]":
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    replica = Replica(
        name="taker.0",
        role="taker",
        rank=0,
        device_uuid=device.uuid,
        limit_mib=LIMIT_MIB,
        fraction=fraction_of(LIMIT_MIB, device.total_mib),
    )
    identity = {"GPUSCHED_RUN_DIR": str(run_dir), "GPUSCHED_REPLICA": replica.name, "GPUSCHED_ATTEMPT": "0"}
    script = str(Path(__file__).parent / "scripts" / f"take_{framework}.py")
    return subprocess.Popen(
        [sys.executable, *options, script],
        env=child_environment(os.environ, resource_environment(replica, xla_variable()), identity),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def check(found: ReplicaPeaks | None, framework: str) -> None:
    print(f"\n{found}")
    assert found is not None
    assert (found.processes, [one.framework for one in found.frameworks]) == (1, [framework])
    if framework != "cupy":  # it counts no peak
        assert found.peak_mib is not None
        assert TAKEN_MIB <= found.peak_mib <= LIMIT_MIB
    if framework == "tensorflow":
        assert found.pool_mib is None
    else:
        assert found.pool_mib is not None
        assert (found.peak_mib or TAKEN_MIB) <= found.pool_mib <= LIMIT_MIB


@pytest.mark.parametrize("framework", ["torch", "jax", "cupy", "tensorflow"])
def test_a_program_that_ends_has_left_its_peaks(real_device: RealDevice, tmp_path: Path, framework: str) -> None:
    process = start(framework, real_device, tmp_path)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    check(read_peaks(tmp_path, "taker.0", 0), framework)


@pytest.mark.parametrize("framework", ["torch", "jax", "cupy", "tensorflow"])
def test_a_program_that_is_killed_has_left_its_last_sample(
    real_device: RealDevice, tmp_path: Path, framework: str
) -> None:
    process = start(framework, real_device, tmp_path, "-c", SAMPLED)

    def sampled() -> bool:
        found = read_peaks(tmp_path, "taker.0", 0)
        return found is not None and (found.peak_mib or found.pool_mib or 0) >= TAKEN_MIB

    try:
        until(sampled, "a sample has all that was taken")
    finally:
        process.kill()
        process.communicate()
    check(read_peaks(tmp_path, "taker.0", 0), framework)
