"""A process with a framework and without the import hook: its limit is not in force, and that can be seen."""

import sys
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.queue import jobs, queue
from tests.patience import until

HALF = ("--machine", "1x16GiB", "--fraction", "0.5", "--")
PROGRAM = """
import mmap, os, sys, time
with open({library!r}, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sys.path.insert(0, {stub!r})
{more}
open({mark!r}, "w").write(str(os.getpid()))
while not os.path.exists({gate!r}):
    time.sleep(0.05)
"""
STUB = """
class memory:
    set_per_process_memory_fraction = staticmethod(lambda *_: None)
class cuda:
    memory = memory
    _lazy_call = staticmethod(lambda _: None)
"""
WITHOUT = {
    "PYTHONPATH": "PYTHONPATH=/somewhere {python} {program}",
    "env -i": "env -i {python} {program}",
    "-S": "{python} -S {program}",
    "a child": '{python} -c \'import subprocess; subprocess.run(["{python}", "-I", "{program}"])\'',
}


def script(command: Command, way: str, more: str = "") -> tuple[str, ...]:
    """A command whose Python has a library of PyTorch's name mapped, and with `more` a torch to import."""
    home = command.home
    (home / "libtorch_cpu.so").write_bytes(bytes(4096))
    (home / "stub").mkdir()
    (home / "stub" / "torch.py").write_text(STUB)
    paths = {"library": f"{home}/libtorch_cpu.so", "stub": f"{home}/stub", "mark": f"{home}/on", "gate": f"{home}/go"}
    (home / "program.py").write_text(PROGRAM.format(more=more, **paths))
    return ("sh", "-c", f"{way.format(python=sys.executable, program=home / 'program.py')}; sleep 1000")


def warning(command: Command) -> str | None:
    replicas = jobs(command)["run-1"]["replicas"]
    return str(replicas[0]["warning"]) if replicas and replicas[0]["warning"] else None


@pytest.mark.parametrize("way", WITHOUT)
def test_a_process_that_the_hook_does_not_reach_is_warned_of(way: str, command: Command) -> None:
    queue(command, *HALF, *script(command, WITHOUT[way]))
    until(lambda: warning(command), "the warning is there")

    pid = (command.home / "on").read_text()
    told = f"process {pid} has loaded torch without the import hook, and the memory limit is not in force there"
    assert warning(command) == told
    (command.home / "go").touch()
    until(lambda: warning(command) is None, "the warning is taken back when the process has ended")


@pytest.mark.parametrize(
    ("way", "more"),
    [
        ("{python} {program}", "import torch"),
        (
            "{python} -S {program}",
            "sys.path[1:1] = [{root!r}]; import torch, gpusched.frameworks as f; f.limit_memory()",
        ),
    ],
    ids=["by the hook", "by the program itself"],
)
def test_a_process_that_has_its_limit_is_not_warned_of(way: str, more: str, command: Command) -> None:
    """It began before one that is warned of, of the same replica."""
    home = command.home
    _, shell, text = script(command, way, more.format(root=str(Path(__file__).parents[2])))
    limited = text.removesuffix("; sleep 1000")
    (home / "other.py").write_text(
        (home / "program.py").read_text().replace(more, "").replace(f"{home}/on", f"{home}/two")
    )
    other = f"env -i {sys.executable} {home}/other.py"

    queue(command, *HALF, "sh", shell, f"{limited} & while [ ! -e {home}/on ]; do sleep 0.05; done; {other}")
    until(lambda: warning(command), "the warning is there")
    told = str(warning(command))
    (home / "go").touch()  # nothing marks what `env -i` starts as this test's

    assert f"process {(home / 'two').read_text()} has loaded torch" in told
    limits = command.state / "jobs" / "run-1" / "limits"
    assert [path.name for path in limits.iterdir()] == [f"{(home / 'on').read_text()}.torch"]
