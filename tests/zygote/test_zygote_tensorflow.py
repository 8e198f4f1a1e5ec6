"""A zygote with the real TensorFlow: what its forks compute, what they may use, and when it refuses."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusched.environment import resource_environment
from gpusched.model.plan import Replica, ReplicaSpec
from gpusched.model.status import JobState
from tests.patience import PATIENCE_S, until
from tests.supervisor.host import Host
from tests.supervisor.zygotes import Preloading, steps, wait_step, zygote

pytestmark = [
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]
PROGRAM = """
import ctypes, json, os, sys
preloaded = "tensorflow" in sys.modules
import keras, numpy as np, tensorflow as tf
from tensorflow.python.eager import context

drawn = [np.random.rand(), float(tf.random.uniform([])), float(keras.random.uniform([]))]
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
drawn.append(float(model.get_weights()[0][0, 0]))
model.compile("adam", "mse")
x, y = np.random.default_rng(1).random((64, 10)), np.ones((64, 1))
losses = model.fit(x, y, epochs=5, verbose=0).history["loss"]
(library,) = {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}
visible = ctypes.CDLL(None).getenv
visible.restype = ctypes.c_char_p
print("told", json.dumps({
    "preloaded": preloaded,
    "drawn": drawn,
    "learns": losses[-1] < losses[0],
    "predicts": model.predict(x, verbose=0).shape,
    "limited": hasattr(context.Context.set_memory_growth, "gpusched_limits"),
    "visible": [os.environ["CUDA_VISIBLE_DEVICES"], visible(b"CUDA_VISIBLE_DEVICES").decode()],
    "threads of TensorFlow": context.context().config.intra_op_parallelism_threads,
    "threads of OpenBLAS": ctypes.CDLL(library).scipy_openblas_get_num_threads64_(),
}), flush=True)
"""


@pytest.fixture
def place(host: Host, tmp_path: Path) -> Preloading:
    directory = tmp_path / "place"
    directory.mkdir()
    return Preloading(host, directory)


def on_device(place: Preloading, rank: int) -> ReplicaSpec:
    what = Replica(
        name=f"part.{rank}",
        role="part",
        rank=rank,
        device_uuid=f"GPU-{rank}",
        limit_mib=256,
        fraction=158,
        cpus=tuple(os.sched_getaffinity(0)),
        threads=2,
    )
    spec = place.python(what.name, "-m", "program")
    return msgspec.structs.replace(spec, replica=what, env=resource_environment(what, "XLA_PYTHON_CLIENT_MEM_FRACTION"))


def test_forks_of_tensorflow_compute_each_with_its_own_device_limit_threads_and_seed(place: Preloading) -> None:
    place.write("program", PROGRAM)
    one = place.start(on_device(place, 0), on_device(place, 1), preload=("tensorflow",))
    until(lambda: one.status.state in {JobState.SUCCEEDED, JobState.FAILED}, "all have trained", PATIENCE_S)
    told: list[dict[str, Any]] = []
    for rank in range(2):
        lines = [line for line in one.output(f"part.{rank}").splitlines() if line.startswith("told ")]
        assert lines, one.output(f"part.{rank}")[-2000:]
        told.append(json.loads(lines[0].removeprefix("told ")))
    for rank, each in enumerate(told):
        assert each["visible"] == [f"GPU-{rank}"] * 2
        assert (each["preloaded"], each["learns"], each["limited"]) == (True, True, True)
        assert each["predicts"] == [64, 1]
        assert each["threads of TensorFlow"] in {0, 2}, "0: TensorFlow reads the variable"
        assert each["threads of OpenBLAS"] == 2
    numbers = [number for each in told for number in each["drawn"]]
    assert len(set(numbers)) == len(numbers) == 8
    assert one.status.state is JobState.SUCCEEDED


def test_tensorflow_that_has_run_an_operation_is_not_forked(place: Preloading) -> None:
    place.write("uses", "import tensorflow as tf\ntf.constant(1)")
    place.write("plain", "print('started', flush=True)")
    one = place.start(place.python("part.0", "-m", "plain"), preload=("uses",))
    until(lambda: any(step.startswith("gone") for step in steps(one)), "the zygote is gone", PATIENCE_S)
    assert "after the import of uses it cannot be forked: it has started TensorFlow's context" in wait_step(one, "gone")
    one.wait_output("part.0", "started")
    one.wait_ended()


def test_the_zygote_of_snake_has_one_thread(place: Preloading) -> None:
    place.write("wait", "import signal\nsignal.pause()")
    spec = place.python("part.0", "-m", "wait")
    root = str(Path(__file__).parents[2])
    place.write("roots", f"import sys\nsys.path.insert(0, {root!r})")
    names = ("roots", "tensorflow", "workloads.snake.learner", "workloads.snake.actor")
    one = place.start(spec, preload=names)
    until(lambda: any(step.startswith(("ready", "gone")) for step in steps(one)), "all is loaded", PATIENCE_S)
    wait_step(one, "ready: ")
    one.wait_running("part.0")
    assert len(list(Path(f"/proc/{zygote(one)}/task").iterdir())) == 1
    one.stop()
    one.wait_ended()
