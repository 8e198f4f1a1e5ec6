"""What jobs do with their devices in the course of hours, and when each is to be called idle.

`python -m tests.daemon.idle_traces` prints the table of docs/idle.md.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpusched.daemon.idleness import Idleness
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.model.usage import Usage

AFTER_S: Final = 1800.0
STEP_S: Final = 5
MIN: Final = 60
ON_GPU, ON_CPU = "learner.0", "actor.0"


class Phase(NamedTuple):
    """What is true for some minutes. `sm`, `util`: percent of the process and of its device; None: not reported.

    `burst`: kernels run for so many seconds in each of so many. `cpu`: CPUs that it keeps busy, `helper`: those of a
    replica without a device. `shows`: its process is on the device. `beside`: percent of another job's process there.
    `dark`: nothing is reported in so many seconds of each of so many. `halted`: no reading is taken.
    """

    minutes: float
    sm: int | None = 0
    util: int | None = 0
    burst: tuple[int, int] | None = None
    cpu: float = 0.0
    helper: float = 0.0
    second: int | None = 0
    shows: bool = True
    beside: int | None = None
    dark: tuple[int, int] | None = None
    halted: bool = False
    starts: bool = False


class Trace(NamedTuple):
    """`idle`: from which minutes on it is called idle, in the order of its phases; none: never."""

    kind: str
    what: str
    phases: tuple[Phase, ...]
    idle: tuple[float, ...] = ()
    unknown: bool = False
    mig: bool = False


def on(minutes: float, sm: int | None = 90, **fields: object) -> Phase:
    return Phase(minutes, sm=sm, util=sm, **fields)  # type: ignore[arg-type]


def off(minutes: float, **fields: object) -> Phase:
    return Phase(minutes, **fields)  # type: ignore[arg-type]


def silent(minutes: float, util: int | None = None, **fields: object) -> Phase:
    return Phase(minutes, sm=None, util=util, **fields)  # type: ignore[arg-type]


TRACES: Final = (
    Trace("training", "without a pause", (on(240),)),
    Trace("training", "a small model: 1 % of the device", (on(240, 1),)),
    Trace("training", "20 s of kernels in each 10 minutes", (off(240, burst=(20, 600)),)),
    Trace("training", "10 s of kernels in each 25 minutes", (off(240, burst=(10, 1500)),)),
    Trace("training", "40 minutes of evaluation on the CPU in between", (on(30), off(40, cpu=1.0), on(30))),
    Trace("training", "a checkpoint that takes 20 minutes to write", (on(30), off(20, cpu=0.02), on(30))),
    Trace("training", "its first replica waits, its second one works", (off(240, second=50),)),
    Trace("training", "actors on CPUs collect for 90 minutes before the first step", (off(90, helper=1.0), on(60))),
    Trace("training", "beside another job that fills the device", (on(240, 2, beside=95),)),
    Trace("training", "beside another job, without figures of processes", (silent(240, 95, beside=0),), unknown=True),
    Trace("training", "crashes every 20 minutes before its first kernel", (off(20, starts=True),) * 9),
    Trace("loading", "10 minutes at the start, with a busy CPU", (off(10, cpu=2.0), on(60))),
    Trace("loading", "10 minutes at the start, from a slow disk", (off(10, cpu=0.01), on(60))),
    Trace("loading", "10 minutes between epochs, with a busy CPU", (on(20), off(10, cpu=0.8)) * 5),
    Trace("loading", "10 minutes between epochs, from a slow disk", (on(20), off(10, cpu=0.01)) * 5),
    Trace("loading", "a download of 50 minutes at the start", (off(50, cpu=0.03), on(60))),
    Trace("loading", "90 minutes of tokenising at the start", (off(90, cpu=8.0), on(60))),
    Trace("loading", "100 minutes of preprocessing in the middle", (on(30), off(100, cpu=1.0), on(30))),
    Trace("loading", "10 minutes after each restart", (on(60), off(10, cpu=1.0, starts=True), on(60))),
    Trace("debugger", "a breakpoint after 10 minutes of training", (on(10), off(120)), (40,)),
    Trace("debugger", "a breakpoint before the first kernel", (off(120),), (60,)),
    Trace("debugger", "20 minutes at a breakpoint, then it goes on", (on(10), off(20), on(60))),
    Trace("debugger", "a step each 29 minutes", (on(1), off(28)) * 8),
    Trace("debugger", "a process that is halted", (on(30), off(60)), (60,)),
    Trace("debugger", "an hour at a breakpoint, then an hour of work", (on(10), off(60), on(60)), (40,)),
    Trace("notebook", "cells for 5 minutes, then its kernel waits", (on(5), off(120, cpu=0.005)), (35,)),
    Trace("notebook", "imports only, and waits", (off(1, cpu=1.0), off(120, cpu=0.005)), (60,)),
    Trace("notebook", "a cell each 20 minutes", (on(1), off(19, cpu=0.005)) * 10),
    Trace("notebook", "a cell each 45 minutes", (on(1), off(44, cpu=0.005)) * 2, (31, 76)),
    Trace("notebook", "two hours of tables on the CPU, then a model", (off(120, cpu=1.0), on(60))),
    Trace("finished", "trained, and sleeps", (on(60), off(120)), (90,)),
    Trace("finished", "trained, and sleeps beside another job", (on(60, beside=0), off(120, beside=90)), (90,)),
    Trace("finished", "trained and waits; figures of the device only", (silent(60, 80), silent(120, 0)), (90,)),
    Trace("finished", "a server without requests, whose loop keeps a CPU busy", (on(10), off(240, cpu=1.0)), (160,)),
    Trace("finished", "its learner is done, its actors go on", (on(10), off(240, helper=1.0)), (160,)),
    Trace("finished", "it never opened the device, and sleeps", (off(120, shows=False),), (60,)),
    Trace("finished", "it found no device, and trains on the CPU", (off(240, cpu=4.0, shows=False),), (150,)),
    Trace("MIG", "works on an instance", (silent(240),), unknown=True, mig=True),
    Trace("MIG", "does nothing on an instance", (silent(240),), unknown=True, mig=True),
    Trace("counters", "no figures at all", (silent(240),), unknown=True),
    Trace("counters", "figures of the device only, which it has to itself", (silent(240, 40),)),
    Trace("counters", "every second figure is missing", (off(240, dark=(5, 10)),), unknown=True),
    Trace("counters", "a figure is missing each 10 minutes", (on(10), off(120, dark=(5, 600))), (40,)),
    Trace("counters", "no reading for 10 minutes", (on(10), off(20), off(10, halted=True), off(60)), (70,)),
    Trace("counters", "no reading for 40 s", (on(10), off(20), off(0.7, halted=True), off(60)), (40,)),
)
"""`unknown`: what is not known is not idle, whatever the job does."""


def readings(trace: Trace) -> Iterator[tuple[float, Inventory, tuple[Lease, ...], JobStatus]]:
    """Yield what a daemon would read every five seconds: the time, the devices, the leases, and the job."""
    second = began = starts = measured = 0
    cpu_s = {ON_GPU: 0.0, ON_CPU: 0.0}
    known = dict(cpu_s)
    two = any(phase.second for phase in trace.phases)
    for phase in trace.phases:
        if phase.starts:
            starts, began, measured = starts + 1, second, 0
            cpu_s = dict.fromkeys(cpu_s, 0.0)
        for _ in range(int(phase.minutes * MIN) // STEP_S):
            second += STEP_S
            cpu_s[ON_GPU] += phase.cpu * STEP_S
            cpu_s[ON_CPU] += phase.helper * STEP_S
            if (second - began) % MIN == 0:  # the supervisor measures once a minute
                measured, known = second - began, dict(cpu_s)
            if not phase.halted:
                job = _job(known, measured, starts, two=two)
                yield float(second), _host(trace, phase, second, two=two), _leases(phase), job


def _host(trace: Trace, phase: Phase, second: int, *, two: bool) -> Inventory:
    runs = phase.burst is not None and second % phase.burst[1] < phase.burst[0]
    dark = phase.dark is not None and second % phase.dark[1] < phase.dark[0]
    sm = None if dark else 60 if runs else phase.sm
    util = None if dark else 60 if runs else phase.util
    processes = [DeviceProcess(pid=100, memory_mib=900, sm_percent=sm)] if phase.shows else []
    if phase.beside is not None:
        one = None if phase.sm is None else phase.beside
        processes.append(DeviceProcess(pid=300, memory_mib=900, sm_percent=one))
        util = max(util or 0, phase.beside)
    first = Device(
        index=0,
        uuid="GPU-0",
        name="V100",
        mig_index=0 if trace.mig else None,
        utilization_percent=util,
        processes=tuple(processes),
    )
    other = Device(
        index=1,
        uuid="GPU-1",
        name="V100",
        utilization_percent=phase.second,
        processes=(DeviceProcess(pid=101, memory_mib=900, sm_percent=phase.second),),
    )
    return Inventory(host="h", source="nvml", devices=(first, other) if two else (first,), cpus=(0,))


def _leases(phase: Phase) -> tuple[Lease, ...]:
    own = [
        Lease(device_uuid=f"GPU-{n}", share_mib=1000, job="run-1", replica=f"learner.{n}", pid=100 + n, run_dir="/j")
        for n in range(2)
    ]
    beside = Lease(device_uuid="GPU-0", share_mib=1000, job="run-2", replica="command.0", pid=300, run_dir="/k")
    return (*own, beside) if phase.beside is not None else tuple(own)


def _job(cpu_s: dict[str, float], seconds: int, starts: int, *, two: bool) -> JobStatus:
    names = [ON_GPU, *(["learner.1"] if two else []), ON_CPU]
    replicas = tuple(
        ReplicaStatus(
            name=name,
            role=name.partition(".")[0],
            state=ReplicaState.RUNNING,
            pid=100 + number,
            restarts=starts,
            device_uuid=None if name == ON_CPU else f"GPU-{number}",
            usage=(Usage(attempt=starts, seconds=float(seconds), cpu_s=cpu_s.get(name, 0.0)),) if seconds else (),
        )
        for number, name in enumerate(names)
    )
    return JobStatus(id="run-1", workload="run", state=JobState.RUNNING, counts=(), replicas=replicas, run_dir="/j")


def called_idle(trace: Trace) -> list[float]:
    """Return the minutes from which on the job is called idle, each once it was not before."""
    idleness, found, was = Idleness(AFTER_S, 1.0), list[float](), False
    for now, inventory, leases, job in readings(trace):
        idleness.sample(inventory, leases, [job], now)
        idle = idleness.idle_s("run-1") is not None
        if idle and not was:
            found.append(now / MIN)
        was = idle
    return found


def table() -> str:
    """The table of the document."""
    lines = ["| | a job | is called idle |", "|---|---|---|"]
    for trace in TRACES:
        minutes = " and ".join(f"{minute:g}" for minute in trace.idle)
        verdict = f"from minute {minutes} on" if minutes else "no: nothing is known" if trace.unknown else "no"
        lines.append(f"| {trace.kind} | {trace.what} | {verdict} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
