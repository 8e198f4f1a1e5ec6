"""What a program's frameworks have taken is left in its run directory, however it ends; the program notices nothing."""

import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusched.environment import HOOK_DIRECTORY
from gpusched.frameworks.recorder import pause_s
from tests.frameworks.conftest import HERE, RunScript
from tests.frameworks.imitations import imitate
from tests.patience import PATIENCE_S, until

ROOT = HERE.parent.parent
SOON = "import gpusched.frameworks.recorder as recorder; recorder.PAUSE_S = 0.01\n"
TORCH = {"framework": "torch", "version": "9.8.7+cu130", "peak_mib": 9, "pool_mib": 42}
JAX = {"framework": "jax", "version": "0.10.2", "peak_mib": 2, "pool_mib": 16}


def test_what_a_killed_process_loses_is_a_fifth_of_its_time_and_a_minute_at_most() -> None:
    age, samples = 0.0, 0
    while age < 3600:
        following = age + pause_s(age)
        assert following - age <= min(60.0, max(1.0, following / 5 + 1e-9))
        age, samples = following, samples + 1
    assert samples < 90


class Place:
    """A replica's run directory, and programs that run as that replica, with imitations to import."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.run_dir = directory / "run"
        self.run_dir.mkdir()
        modules = str(imitate(directory / "modules"))
        self.environment = {name: value for name, value in environment.items() if name != "RECORD"} | {
            "GPUSCHED_RUN_DIR": str(self.run_dir),
            "GPUSCHED_REPLICA": "actor.0",
            "GPUSCHED_ATTEMPT": "2",
            "PYTHONPATH": os.pathsep.join([str(HOOK_DIRECTORY), modules, str(ROOT)]),
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, code: str, *options: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        argv = [sys.executable, *options, "-c", code]
        self._started.append(
            subprocess.Popen(argv, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        )
        return self._started[-1]

    def run(self, code: str, *options: str) -> tuple[int, str, str]:
        """Run a program to its end; return its exit code and what it printed."""
        process = self.start(code, *options)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def left(self) -> dict[int, Any]:
        """What each process has left, by its pid."""
        files = sorted((self.run_dir / "memory").glob("*.json")) if (self.run_dir / "memory").is_dir() else []
        assert all(path.name.startswith("actor.2.") or path.name.startswith("actor.0.2.") for path in files)
        found = {int(path.name.split(".")[3]): json.loads(path.read_text()) for path in files}
        for entries in found.values():
            for entry in entries:
                assert entry.pop("since") <= entry.pop("until", time.time())
        return found

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path, environment: dict[str, str]) -> Iterator[Place]:
    found = Place(tmp_path, environment)
    yield found
    found.end()


@pytest.mark.parametrize(
    ("last", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise SystemExit('no')", 1), ("1 / 0", 1), ("raise KeyboardInterrupt", -2)],
)
def test_however_a_program_ends_by_itself_its_peaks_are_left_rounded_up_and_summed_over_the_devices(
    place: Place, last: str, code: int
) -> None:
    ended, out, _ = place.run(f"import os, sys, torch; torch.cuda.init(); print(os.getpid(), flush=True)\n{last}")
    assert ended == code
    assert place.left() == {int(out): [TORCH]}
    [path] = (place.run_dir / "memory").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_program_that_starts_no_device_leaves_nothing_and_has_no_thread(place: Place) -> None:
    code = "import torch, jax, cupy, sys, threading; print(threading.active_count(), 'json' in sys.modules)"
    assert place.run(code) == (0, "1 False\n", "")
    assert place.left() == {}


ASKS = """
import jax, torch
from gpusched.frameworks import jax as of_jax, pytorch
print([pytorch.FRAMEWORK.peaks(), of_jax.FRAMEWORK.peaks()], jax.xla_client.calls)
"""


def test_asking_a_framework_that_has_started_no_device_starts_none(place: Place) -> None:
    assert place.run(ASKS) == (0, "[None, None] []\n", "")


def test_a_process_that_is_no_replica_leaves_nothing(place: Place) -> None:
    for name in ("GPUSCHED_REPLICA", "GPUSCHED_RUN_DIR", "GPUSCHED_MEMORY_LIMIT_MIB"):
        value = place.environment.pop(name)
        code = "import torch, threading; torch.cuda.init(); print(threading.active_count())"
        assert place.run(code) == (0, "1\n", "")
        place.environment[name] = value
    assert place.left() == {}


def test_a_program_that_is_killed_has_left_what_it_had_taken_at_the_last_sample(place: Place) -> None:
    process = place.start(
        SOON + "import torch; torch.cuda.init(); input(); torch.cuda.allocated[0] = 90 << 20; input()"
    )
    until(lambda: place.left() == {process.pid: [TORCH]}, "the first sample is there")
    assert process.stdin is not None
    print(file=process.stdin, flush=True)
    until(lambda: place.left() == {process.pid: [TORCH | {"peak_mib": 95}]}, "a later sample is there")
    process.kill()
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert place.left() == {process.pid: [TORCH | {"peak_mib": 95}]}


def test_peaks_that_a_program_sets_back_are_not_forgotten(place: Place) -> None:
    process = place.start(SOON + "import torch; torch.cuda.init(); input(); torch.cuda.allocated = [0, 0]")
    until(lambda: place.left() == {process.pid: [TORCH]}, "the first sample is there")
    assert process.communicate("\n", timeout=PATIENCE_S) == ("", "")
    assert place.left() == {process.pid: [TORCH]}


def test_two_frameworks_of_one_process_stand_in_one_file(place: Place) -> None:
    code, _, err = place.run("import torch, jax; torch.cuda.init(); jax.devices()")
    assert (code, err) == (0, "")
    [left] = place.left().values()
    assert left == [TORCH, JAX]


def test_jax_that_does_not_count_its_pool_leaves_that_unknown(place: Place) -> None:
    place.run("import jax; jax.xla_client.Device.stats = {'peak_bytes_in_use': 1, 'bytes_limit': 9}; jax.devices()")
    [left] = place.left().values()
    assert left == [JAX | {"peak_mib": 1, "pool_mib": None}]


def test_what_has_started_before_the_limit_was_asked_for_is_recorded_too(place: Place) -> None:
    paths = place.environment["PYTHONPATH"].split(os.pathsep)[1:]
    started = f"import sys; sys.path[:0] = {paths}; import jax, torch; torch.cuda.init(); jax.devices()"
    limited = "import gpusched.frameworks; gpusched.frameworks.limit_memory()"
    code, _, err = place.run(f"{started}; {limited}", "-I")
    assert (code, err) == (0, "")
    [left] = place.left().values()
    assert sorted(left, key=str) == sorted([TORCH, JAX], key=str)


CUPY = """
import cupy
usual = cupy.get_default_memory_pool().malloc
cupy.cuda.runtime.devices = {devices}
assert cupy.cuda.get_allocator()(3 << 20) == 3 << 20
assert cupy.cuda.get_allocator() == usual, "the program's own again"
cupy.cuda.get_allocator()(1)
"""


@pytest.mark.parametrize(("devices", "pool"), [(1, 4), (2, None)])
def test_cupy_leaves_what_its_pool_has_taken_and_its_peak_is_unknown(
    place: Place, devices: int, pool: int | None
) -> None:
    assert place.run(CUPY.format(devices=devices)) == (0, "", "")
    [left] = place.left().values()
    assert left == [{"framework": "cupy", "version": "14.0", "peak_mib": None, "pool_mib": pool}]


def test_an_error_of_one_framework_hides_neither_the_other_nor_anything_else(place: Place) -> None:
    broken = "def broken(device): raise RuntimeError('CUDA error')\ntorch.cuda.max_memory_reserved = broken"
    code = f"import torch, jax\n{broken}\ntorch.cuda.init(); jax.devices(); print('ran')"
    assert place.run(code) == (0, "ran\n", "")
    [left] = place.left().values()
    assert left == [JAX]


def as_file(run_dir: Path) -> str:
    (run_dir / "memory").write_text("")
    return ""


def as_link(run_dir: Path) -> str:
    (run_dir / "memory").symlink_to(run_dir / "nowhere")
    return ""


def missing(run_dir: Path) -> str:
    run_dir.rmdir()
    return ""


def without_room(_: Path) -> str:
    return "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"


def read_only(run_dir: Path) -> str:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    run_dir.chmod(0o500)
    return ""


def taken(run_dir: Path) -> str:
    """A pipe where the file is written first: open(2) would wait for a reader."""
    (run_dir / "memory").mkdir()
    return "import os; os.mkfifo(f'{os.environ[\"GPUSCHED_RUN_DIR\"]}/memory/actor.0.2.{os.getpid()}.json.new')"


@pytest.mark.parametrize("harm", [as_file, as_link, missing, without_room, read_only])
def test_where_nothing_can_be_left_the_program_runs_and_ends_as_ever(place: Place, harm: Callable[[Path], str]) -> None:
    before = harm(place.run_dir)
    assert place.run(f"{before}\nimport torch; torch.cuda.init()") == (0, "", "")
    assert not list(place.run_dir.glob("memory/*"))


def test_a_pipe_in_the_place_of_the_file_is_replaced_and_not_waited_for(place: Place) -> None:
    before = taken(place.run_dir)
    assert place.run(f"{before}\nimport torch; torch.cuda.init()") == (0, "", "")
    assert list(place.left().values()) == [[TORCH]]


STUCK = """
import threading, torch
asked = threading.Event()
def stuck(device):
    asked.set()
    threading.Event().wait()
torch.cuda.max_memory_allocated = stuck
torch.cuda.init()
asked.wait()
"""


def test_a_framework_that_does_not_answer_keeps_no_program_from_ending(place: Place) -> None:
    assert place.run(SOON + STUCK) == (0, "", "")
    assert place.left() == {}


WAITS = """
import signal, torch
torch.cuda.init()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
input()
print(signal.sigwait([signal.SIGTERM]), flush=True)
"""


def test_a_signal_that_a_program_waits_for_is_not_taken_by_the_thread(place: Place) -> None:
    process = place.start(WAITS)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)  # while no thread of the program wants it
    assert process.communicate("\n", timeout=PATIENCE_S) == ("15\n", "")


FORK = """
import os, sys, torch
torch.cuda.init()
child = os.fork()
if not child:
    torch.cuda.allocated[0] = 90 << 20
    sys.exit()
os.waitpid(child, 0)
"""


def test_a_fork_leaves_its_parents_file_alone(place: Place) -> None:
    assert place.run(FORK) == (0, "", "")
    assert list(place.left().values()) == [[TORCH]]


OWN_DEVICE = """
import os, sys, torch
read, write = os.pipe()
child = os.fork()
torch.cuda.init()
if not child:
    torch.cuda.allocated[0] = 90 << 20
    sys.exit()
os.waitpid(child, 0)
print(os.getpid(), child)
"""


def test_a_fork_that_starts_a_device_itself_leaves_a_file_of_its_own(place: Place) -> None:
    code, out, err = place.run(OWN_DEVICE)
    assert (code, err) == (0, "")
    parent, child = map(int, out.split())
    assert place.left() == {parent: [TORCH], child: [TORCH | {"peak_mib": 95}]}


MULTIPROCESSING = """
import multiprocessing, sys, torch
def work():
    torch.cuda.init()
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print(child.pid, child.exitcode)
"""


def test_a_process_of_multiprocessing_leaves_its_own_too(place: Place) -> None:
    code, out, err = place.run(MULTIPROCESSING)
    assert (code, err) == (0, "")
    pid, ended = map(int, out.split())
    assert ended == 0
    assert place.left() == {pid: [TORCH]}


EXPLICIT = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {{modules!r}}]
import torch
from gpusched.frameworks import limit_memory
{{before}}
assert limit_memory() == limit_memory() == ("torch",)
torch.cuda.init()
"""


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
@pytest.mark.parametrize("before", ["", "torch.cuda.init()"])
def test_a_program_without_the_hook_that_limits_itself_leaves_its_peaks_too(
    place: Place, option: str, before: str
) -> None:
    modules = str(place.run_dir.parent / "modules")
    assert place.run(EXPLICIT.format(modules=modules, before=before), option) == (0, "", "")
    assert list(place.left().values()) == [[TORCH]]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize(("grows", "pool"), [("true", None), ("false", 1133)])
def test_tensorflow_leaves_its_peak_and_its_limit_where_it_takes_all_of_that(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path, grows: str, pool: int | None
) -> None:
    replica = {"GPUSCHED_RUN_DIR": str(tmp_path), "GPUSCHED_REPLICA": "actor.0", "GPUSCHED_ATTEMPT": "0"}
    ran = run_script("peaks_tensorflow.py", env=environment | replica | {"TF_FORCE_GPU_ALLOW_GROWTH": grows})
    assert (ran.code, ran.out.split()) == (0, ["1", "0", "2"]), ran.err
    [path] = (tmp_path / "memory").iterdir()
    [left] = json.loads(path.read_text())
    assert (left["framework"], left["peak_mib"], left["pool_mib"]) == ("tensorflow", 4, pool)
