"""Forks of a zygote leave what their frameworks have taken, each its own; the zygote itself has no part in that."""

from pathlib import Path

import msgspec
import pytest

from gpusched.environment import resource_environment
from gpusched.execution.framework_peaks import read_peaks
from gpusched.model.plan import Replica, ReplicaSpec
from tests.frameworks.imitations import imitate
from tests.patience import until
from tests.supervisor.host import Host
from tests.supervisor.zygotes import Preloading, wait_step, zygote

PROGRAM = """
import os, sys
print("preloaded", "torch" in sys.modules, flush=True)
import torch
torch.cuda.allocated[0] = (int(os.environ["GPUSCHED_REPLICA"][-1]) + 10) << 20
torch.cuda.init()
"""


@pytest.fixture
def place(host: Host, tmp_path: Path) -> Preloading:
    directory = tmp_path / "place"
    directory.mkdir()
    return Preloading(host, imitate(directory))


def on_device(place: Preloading, rank: int, run_dir: Path) -> ReplicaSpec:
    what = Replica(name=f"part.{rank}", role="part", rank=rank, device_uuid="GPU-0", limit_mib=256, fraction=158)
    spec = place.python(what.name, "-m", "program")
    identity = {"GPUSCHED_RUN_DIR": str(run_dir), "GPUSCHED_REPLICA": what.name, "GPUSCHED_ATTEMPT": "0"}
    env = identity | resource_environment(what, "XLA_PYTHON_CLIENT_MEM_FRACTION")
    return msgspec.structs.replace(spec, replica=what, env=env)


def test_a_zygote_that_has_a_framework_forks_as_ever_and_each_fork_leaves_its_own_peaks(
    place: Preloading, tmp_path: Path
) -> None:
    place.write("program", PROGRAM)
    place.write("wait", "import signal\nsignal.pause()")
    parts = (on_device(place, rank, tmp_path) for rank in range(2))
    one = place.start(*parts, place.python("other.0", "-m", "wait"), preload=("torch",))
    wait_step(one, "ready: ")
    for rank in range(2):
        one.wait_output(f"part.{rank}", "preloaded True")
        until(lambda: read_peaks(tmp_path, f"part.{rank}", 0) is not None, "its peaks are there")  # noqa: B023
        peaks = read_peaks(tmp_path, f"part.{rank}", 0)
        assert peaks is not None
        assert (peaks.processes, peaks.peak_mib, peaks.pool_mib) == (1, 15 + rank, 42)
    assert len(list(Path(f"/proc/{zygote(one)}/task").iterdir())) == 1
    one.stop()
    one.wait_ended()
    assert len(list((tmp_path / "memory").iterdir())) == 2
