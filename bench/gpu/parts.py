"""The parts of the verification: each does something on the GPU, and returns what it saw as Markdown.

A part raises when what it saw is wrong: Wrong, with what was expected.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.fresh import ROOT
from bench.gpu.fill import SCRIPTS
from bench.gpu.ground import Ground, Held, block, table
from gpusched.probe.nvml import NvmlProbe

__all__ = ["PARTS", "Part", "Wrong", "learning"]

Part = Callable[[Ground], str]

_ALONE_MIB: Final = 2048
_PROCESSES: Final = 8
_SNAKE_MINUTES: Final = "0.75"
_HEAD: Final = ("process", "framework", "share", "limit", "got before the error", "pool", "by the driver", "context")
_OUT_OF_MEMORY: Final = {
    "torch": "import torch; torch.zeros(1 << 30, device='cuda')",
    "jax": "import jax.numpy as jnp; jnp.zeros(1 << 30).block_until_ready()",
    "cupy": "import cupy; cupy.zeros(1 << 30, dtype=cupy.float32)",
    "tensorflow": "import tensorflow as tf; tf.zeros(1 << 30)",
}


class Wrong(Exception):
    """What was seen is not what it should be."""


def suite(_: Ground) -> str:
    """The tests that need a GPU."""
    argv = [sys.executable, "-m", "pytest", "-q", "-rsfE", "tests/gpu"]  # any other tests beside it hide the GPU
    done = subprocess.run(argv, cwd=ROOT, env=os.environ, check=False, capture_output=True, text=True, timeout=200)
    told = block(done.stdout[-6000:])
    if done.returncode:
        raise Wrong(f"the tests failed:\n\n{told}{done.stderr[-2000:]}")
    return f"`pytest tests/gpu`:\n\n{told}"


def contexts(ground: Ground) -> str:
    """Each framework alone, with a limit of 2 GiB."""
    found = []
    for framework in ground.frameworks:
        job = _run(ground, "--memory", f"{_ALONE_MIB}MiB", "--name", framework, "--", *_fill(framework))
        found += ground.filled(job)
        ground.end(job, [framework])
    return _kept(found)


def eight(ground: Ground) -> str:
    """Plan and launch of eight processes, each of which fills its share while the others hold theirs."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "workload.toml"
        leader = _write_workload(ground.frameworks, path)
        plan = ground.daemon.command("plan", "--workload", str(path))
        job_id = json.loads(ground.daemon.command("launch", "-d", "--grow", "--json", str(path)))["id"]
    found = ground.filled(job_id)
    device = ground.device()
    smi = _smi("--query-gpu=memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,clocks.sm")
    by_pid = _smi("--query-compute-apps=pid,used_memory")
    shown = ground.daemon.command("status")
    full = subprocess.run(["nvidia-smi"], check=False, capture_output=True, text=True).stdout
    ground.end(job_id, [*(name for name in ground.frameworks if name != leader), leader])
    text = f"{block(plan)}All {_PROCESSES} at the same time:\n\n{_kept(found)}\n"
    text += f"The device then: {device['memory_used_mib']:,} of {device['memory_total_mib']:,} MiB used.\n\n"
    text += _beside(device, smi, by_pid, found)
    text += f"\n`gpusched status` and `nvidia-smi`, one after the other:\n\n{block(shown, full)}"
    text += f"`gpusched usage {job_id}` after its end:\n\n{block(ground.daemon.command('usage', job_id))}"
    return text


def outsider(ground: Ground) -> str:
    """A process that was started without gpusched: it is named, and its memory is not planned."""
    framework = ground.frameworks[0]
    before = _plannable(ground)
    argv = [sys.executable, str(SCRIPTS / f"take_{framework}.py")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None  # noqa: S101 (for the type checker)
        process.stdout.readline()
        (seen,) = [one for one in ground.device()["processes"] if one["pid"] == process.pid]
        after = _plannable(ground)
        doctor = [line for line in ground.gpusched("doctor").stdout.splitlines() if "foreign" in line]
    finally:
        process.communicate()
    if before - after < seen["memory_mib"]:
        raise Wrong(f"{seen['memory_mib']} MiB are another's, and yet {after} MiB are planned of {before}")
    return (
        f"A {framework} program that was started without gpusched held {seen['memory_mib']:,} MiB as user "
        f"{seen['user']}; a plan had {before:,} MiB before and {after:,} MiB beside it.\n\n{block(*doctor)}"
    )


def out_of_memory(ground: Ground) -> str:
    """A program that wants 4 GiB of its 1 GiB: the reason of its end says so."""
    rows = []
    for framework in ground.frameworks:
        job_id = _run(ground, "--memory", "1GiB", "--", "python3", "-c", _OUT_OF_MEMORY[framework])
        ground.gpusched("wait", job_id)
        job = ground.job(job_id)
        reason = job.message or ""
        rows.append((framework, job.state, reason))
        if "memory" not in reason.lower():
            log = ground.gpusched("logs", job.id).stdout[-2000:]
            raise Wrong(f"{framework} ran out of memory, and the reason is {reason}:\n\n{block(log)}")
    return table(("framework", "state", "reason"), rows)


def snake(ground: Ground) -> str:
    """Snake with Keras on each backend that is there."""
    rows = [_learnt(ground, backend, _SNAKE_MINUTES) for backend in _backends(ground)]
    text = f"{_how_learnt(_SNAKE_MINUTES)}{table(_LEARNT, rows)}"
    return f"{text}\n`gpusched usage` then:\n\n{block(ground.daemon.command('usage'))}"


def learning(minutes: float) -> Part:
    """Return the part that learns for so long with each backend on the GPU, and then with one of them on the CPU."""

    def part(ground: Ground) -> str:
        rows = [_learnt(ground, backend, f"{minutes:g}") for backend in _backends(ground)]
        rows.append(_learnt(ground, _backends(ground)[-1], f"{minutes:g}", "--machine=cpu"))
        return f"{_how_learnt(f'{minutes:g}')}{table(_LEARNT, rows)}"

    return part


_LEARNT: Final = ("backend", "on", "steps a second", "greedy mean of 256 games", "full boards", "by the driver")


def _how_learnt(minutes: str) -> str:
    command = f"`KERAS_BACKEND=… gpusched launch snake --procs 4 --minutes {minutes} --seed 1`"
    return f"{command} (on the CPU: and `--machine=cpu`), with the inputs `paths`:\n\n"


def _backends(ground: Ground) -> list[str]:
    return [name for name in ground.frameworks if name != "cupy"]


def _learnt(ground: Ground, backend: str, minutes: str, *where: str) -> tuple[str, ...]:
    """Return a row of what a launch learns in so many minutes. Raises Wrong if it fails."""
    words = ("launch", "-d", "--json", "snake", "--procs", "4", "--minutes", minutes, "--seed", "1", *where)
    job_id = json.loads(ground.gpusched(*words, KERAS_BACKEND=backend).stdout)["id"]
    if ground.gpusched("wait", job_id, patience_s=300 + 60 * float(minutes)).returncode:
        shown = ground.gpusched("ps", job_id).stdout + ground.gpusched("logs", job_id).stdout[-3000:]
        raise Wrong(f"snake with KERAS_BACKEND={backend}:\n\n{block(shown)}")
    job = ground.job(job_id)
    result = json.loads((ground.run_dir(job.id) / "evaluation.json").read_text())
    used = {one.role: one.usage[-1] for one in job.replicas if one.usage}
    driver = ", ".join(f"{role} {use.device_mib} MiB" for role, use in used.items())
    speed, score, full = result["steps"] / result["seconds"], result["mean"], result["full"]
    return backend, "the CPU" if where else "the GPU", f"{speed:,.0f}", f"{score:.1f}", f"{full:.0%}", driver or "-"


def cost(_: Ground) -> str:
    """What one reading of the GPU takes."""
    probe = NvmlProbe()
    probe.read()
    taken = []
    for _once in range(50):
        began = time.perf_counter()
        probe.read()
        taken.append(1000 * (time.perf_counter() - began))
    probe.close()
    return f"50 readings: {statistics.median(taken):.1f} ms (median), {min(taken):.1f} to {max(taken):.1f}.\n"


PARTS: Final[Sequence[tuple[str, Part]]] = (
    ("The tests", suite),
    ("Limits and contexts", contexts),
    ("Plan, launch, and eight processes that fill their shares", eight),
    ("A process of somebody else", outsider),
    ("Out of memory", out_of_memory),
    ("Snake with Keras", snake),
    ("What a reading costs", cost),
)


def _run(ground: Ground, *words: str) -> str:
    told = json.loads(ground.daemon.command("run", "-d", "--json", *words))
    return str(told["id"])


def _fill(framework: str) -> tuple[str, ...]:
    return ("python3", "-m", "bench.gpu.fill", framework)


def _write_workload(frameworks: Sequence[str], path: Path) -> str:
    """Write a workload of eight processes, dealt out to the frameworks; return the one that leads."""
    counts = {name: len(range(at, _PROCESSES, len(frameworks))) for at, name in enumerate(frameworks)}
    lines = ['name = "fill"']
    for name, count in counts.items():
        command = json.dumps(["{python}", "-m", "bench.gpu.fill", name])
        lines += [f"[roles.{name}]", f"count = {count}", f"command = {command}", 'memory = { min = "2GiB" }']
    path.write_text("\n".join([*lines, "[job]", f'leader = "{frameworks[0]}"', ""]))
    return frameworks[0]


def _kept(found: Sequence[Held]) -> str:
    """Return a table of what each holds. Raises Wrong if one holds more than its share, or far less."""
    rows = []
    for one in found:
        replica = one.replica
        mib = (replica.share_mib, replica.limit_mib, one.got, one.pool, one.driver, one.context)
        rows.append((replica.name, one.framework, *(f"{amount:,}" for amount in mib)))
    text = table(_HEAD, rows)
    for one in found:
        if not 0.9 * one.replica.limit_mib <= one.got <= one.pool <= one.replica.limit_mib:
            raise Wrong(f"{one.replica.name} did not keep to its limit, or did not get it:\n\n{text}")
        if "memory" not in one.error.lower():
            raise Wrong(f"{one.replica.name} ended its filling with {one.error}")
    return text + "\nMiB. The error is the framework's own. The context is what the driver shows beside the pool.\n"


def _beside(device: dict[str, object], smi: str, by_pid: str, found: Sequence[Held]) -> str:
    total, used, busy, heat, watts, clock = (word.strip() for word in smi.split(","))
    rows: list[tuple[object, ...]] = [
        ("memory, MiB", device["memory_total_mib"], total),
        ("of it used", device["memory_used_mib"], used),
        ("utilisation, %", device["utilization_percent"], busy),
        ("temperature, °C", device["temperature_c"], heat),
        ("power, W", device["power_w"], watts),
        ("SM clock, MHz; slowed by", device["slowed_by"], clock),
    ]
    pairs = (line.split(",") for line in by_pid.splitlines() if line[:1].isdigit())
    theirs = {int(pid): int(mib) for pid, mib in pairs}
    rows += [(f"process {one.replica.name}", one.driver, theirs.get(one.replica.pid or 0, "-")) for one in found]
    return table(("", "gpusched status", "nvidia-smi"), rows)


def _plannable(ground: Ground) -> int:
    plan = json.loads(ground.daemon.command("plan", "--procs", "1", "--json"))
    return int(plan["devices"][0]["memory_plannable_mib"])


def _smi(query: str) -> str:
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
