"""What a host costs on which nothing happens: four GPUs and one job of 33 processes. Run `python -m bench.idle`.

The GPUs are tests/stand_in (NVIDIA's library answers without a device). Then replicas are killed, to see how soon that
is noticed.
"""

import json
import os
import signal
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.host import Daemon, arguments, cpu_s, memory_mb, print_results, running_daemon, until
from gpusched.execution.directory import JobDirectory
from gpusched.linux.processes import parent
from gpusched.model.status import JobState, ReplicaState
from tests.stand_in.library import FOUR_V100, StandIn

WORKLOAD = """
name = "sleepers"
[roles.learner]
command = ["sleep", "1000000"]
memory = { min = "2GiB", share = 0.75 }
[roles.actor]
count = 32
command = ["sleep", "1000000"]
memory = { min = "512MiB" }
restart = { policy = "on-failure", max = 100 }
[job]
leader = "learner"
"""

Result = tuple[str, float, str, str]


def launched(daemon: Daemon) -> JobDirectory:
    """Start the job through the daemon, and return its directory once all its processes run."""
    workload = daemon.state.parent / "workload.toml"
    workload.write_text(WORKLOAD)
    job = daemon.command("launch", str(workload), "--detach").split()[0]
    directory = JobDirectory(daemon.state / "jobs" / job)
    until(lambda: running(directory), f"all processes of {job} run")
    return directory


def running(directory: JobDirectory) -> bool:
    """Return whether the job runs with all its replicas."""
    status = directory.read_status()
    return (
        status is not None
        and status.state is JobState.RUNNING
        and all(one.state is ReplicaState.RUNNING for one in status.replicas)
    )


def idle_cost(processes: dict[str, int], seconds: float) -> list[Result]:
    """Return what each process uses while nothing happens."""
    before = {name: cpu_s(pid) for name, pid in processes.items()}
    time.sleep(seconds)
    results: list[Result] = []
    for name, pid in processes.items():
        rss, pss = memory_mb(pid)
        cpu, memory = ("< 0.5", "< 60") if name == "daemon" else ("< 0.3", "< 40")
        results += [
            (f"{name}: CPU, of one core", 100 * (cpu_s(pid) - before[name]) / seconds, "%", cpu),
            (f"{name}: RSS", rss, "MB", memory),
            (f"{name}: PSS", pss, "MB", ""),
        ]
    return results


def noticed_after(directory: JobDirectory, times: int) -> list[Result]:
    """Kill actors, and return how long it takes until that stands in events.jsonl and in status.json."""
    told, shown = [], []
    for rank in range(times):
        name = f"actor.{rank}"
        pid = pid_of(directory, name)
        events = len(directory.events.read_bytes())
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        until(partial(is_not, directory, name, pid), f"{name} is shown as dead", every_s=0.001)
        shown.append(time.time() - killed)
        lines = directory.events.read_bytes()[events:].splitlines()
        told.append(next(one["time"] for one in map(json.loads, lines) if one["subject"] == name) - killed)
        until(lambda: running(directory), f"{name} runs again")
    return [
        ("a killed replica: noticed after (median)", 1000 * statistics.median(told), "ms", ""),
        ("a killed replica: noticed after (slowest)", 1000 * max(told), "ms", "< 100"),
        ("a killed replica: shown after (slowest)", 1000 * max(shown), "ms", ""),
    ]


def pid_of(directory: JobDirectory, name: str) -> int:
    """Return the pid of a replica. Raises LookupError where it does not run."""
    status = directory.read_status()
    for one in status.replicas if status else ():
        if one.name == name and one.pid is not None:
            return one.pid
    raise LookupError(f"{name} of {directory.path.name} does not run")


def is_not(directory: JobDirectory, name: str, pid: int | None) -> bool:
    """Return whether the status names no such pid for a replica."""
    status = directory.read_status()
    return status is not None and all(one.pid != pid for one in status.replicas if one.name == name)


def main() -> None:
    """Measure, and print what came out."""
    typed = arguments(__doc__, ("--seconds", 60, "how long nothing happens"), ("--kills", 10, "how many replicas die"))
    with tempfile.TemporaryDirectory() as folder:
        host = StandIn(Path(folder)).host(FOUR_V100.replace("set 2 compute 3", ""))
        with running_daemon(host.env) as daemon:
            job = launched(daemon)
            status = job.read_status()
            supervisor = (status.supervisor_pid if status else None) or 0
            processes = {"daemon": daemon.pid, "supervisor": supervisor, "guard": parent(supervisor) or 0}
            time.sleep(5)  # until what follows a start is over
            results = [*idle_cost(processes, typed.seconds), *noticed_after(job, typed.kills)]
    print_results(results, as_json=typed.json)


if __name__ == "__main__":
    main()
