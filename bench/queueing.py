"""How fast the queue is: submissions, jobs, `ps` and the daemon's start. Run `python -m bench.queueing`."""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from bench.host import Daemon, arguments, cpu_s, median_s, memory_mb, print_results, running_daemon, until
from gpusched.control.client import control_socket
from gpusched.control.codec import decode_answer, encode
from gpusched.control.messages import PROTOCOL, Submit, Submitted
from gpusched.execution.directory import JobDirectory, claim_directory, complete
from gpusched.execution.spec import JobSpec
from gpusched.execution.submission import command_submission
from gpusched.model.job import Submission
from gpusched.model.status import ExitReason, JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.model.usage import Usage
from gpusched.settings import load_settings
from gpusched.storage.job import Job
from gpusched.storage.store import Store

MACHINE = "4x16GiB"

Result = tuple[str, float, str, str]


def submission() -> Submission:
    """Return a job that wants one of four devices for an hour."""
    return command_submission(["sleep", "3600"], {"num_gpus": "1", "machine": MACHINE}, {})


def submit_many(daemon: Daemon, jobs: int) -> list[Result]:
    """Submit jobs as fast as one client can, with each answer awaited and without; four can run, all others wait."""
    before, _ = memory_mb(daemon.pid)
    began, used = time.perf_counter(), cpu_s(daemon.pid)
    for _ in range(jobs):
        daemon.client.ask(Submit(job=submission()), patience_s=30)
    taken, used = time.perf_counter() - began, cpu_s(daemon.pid) - used
    results = [
        (f"{jobs} submissions, each when the last is on disk", jobs / taken, "1/s", ">= 300"),
        ("  the daemon's CPU time for each", 1000 * used / jobs, "ms", ""),
        ("  its RSS before", before, "MB", "< 60"),
        ("  its RSS after", memory_mb(daemon.pid)[0], "MB", "< 60"),
    ]
    time.sleep(3)  # until as many run as can
    results += [
        (f"gpusched ps with {jobs} waiting", median_s(lambda: daemon.command("ps")), "s", "<= 0.2"),
        ("  the daemon's answer alone", median_s(lambda: daemon.jobs(20)), "s", ""),
        (f"{jobs} submissions more, sent at once", submitted_at_once(daemon, jobs), "1/s", ">= 300"),
    ]
    began = time.perf_counter()
    daemon.end_jobs()
    results.append((f"stop --all of {2 * jobs}", time.perf_counter() - began, "s", ""))
    results.append(("  its RSS after that", memory_mb(daemon.pid)[0], "MB", "< 60"))
    return results


def submitted_at_once(daemon: Daemon, jobs: int) -> float:
    """Send as many submissions before the first answer is read, and return how many a second were on disk."""
    message = encode(Submit(job=submission()))
    with zmq.Context() as context, context.socket(zmq.DEALER) as link:
        link.connect(f"ipc://{control_socket(load_settings(daemon.environ))}")
        began = time.perf_counter()
        for number in range(jobs):
            link.send_multipart([bytes([PROTOCOL]), number.to_bytes(8, "big"), message])
        for _ in range(jobs):
            if not isinstance(answer := decode_answer(link.recv_multipart()[2]), Submitted):
                sys.exit(f"the daemon answered {answer}")
        return jobs / (time.perf_counter() - began)


def many_short(jobs: int) -> list[Result]:
    """Queue as many `true` at once, 16 of which can run at a time, and wait for the end of all."""
    short = command_submission(["true"], {"fraction": "0.25", "machine": MACHINE}, {})
    with running_daemon() as daemon:
        began = time.perf_counter()
        for _ in range(jobs):
            daemon.client.ask(Submit(job=short), patience_s=30)
        until(lambda: not daemon.jobs(0), "all have ended", every_s=0.1)
        taken = time.perf_counter() - began
        own, below = cpu_s(daemon.pid), cpu_below_s(daemon.pid)
        return [
            (f"{jobs} jobs that do nothing, queued at once", jobs / taken, "1/s", ">= 30"),
            ("  the daemon's CPU time for each", 1000 * own / jobs, "ms", "<= 20"),
            ("  that of fork server, guards and supervisors", 1000 * below / jobs, "ms", "<= 35"),
            ("  the daemon's RSS then", memory_mb(daemon.pid)[0], "MB", "< 120"),
        ]


def cpu_below_s(pid: int) -> float:
    """Return the CPU seconds of the children of a process, and of all that they and it have waited for."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    waited = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]))
    return waited / os.sysconf("SC_CLK_TCK") + sum(cpu_s(int(child)) + cpu_below_s(int(child)) for child in children)


def many_ended(jobs: int) -> list[Result]:
    """Start a daemon that knows many jobs that ended, and ask it for them."""
    with running_daemon() as daemon:
        daemon.stop()
        fill(daemon.state, jobs)
        size = (daemon.state / "gpusched.db").stat().st_size / 1e6
        starts = []
        for _ in range(3):
            starts.append(daemon.start())
            ready = memory_mb(daemon.pid)[0]
            daemon.stop()
        without = children_cpu_s(lambda: daemon.command("ps"))
        daemon.start()
        usage = median_s(lambda: daemon.command("usage", "--since", "7d"), 9)
        return [
            (f"{jobs} ended jobs: gpusched ps without a daemon, CPU time", without, "s", "<= 0.5"),
            ("  the database", size, "MB", ""),
            ("  the daemon's start, until it answers", sorted(starts)[1], "s", "<= 0.5"),
            ("  its RSS then", ready, "MB", "< 60"),
            ("  gpusched ps", median_s(lambda: daemon.command("ps")), "s", "<= 0.5"),
            ("  gpusched usage --since 7d", usage, "s", "<= 0.3"),
            ("  gpusched ps --all --json", median_s(lambda: daemon.command("ps", "--all", "--json"), 3), "s", ""),
            ("  its RSS after that", memory_mb(daemon.pid)[0], "MB", "< 60"),
        ]


def children_cpu_s(step: Callable[[], object]) -> float:
    """Return the CPU seconds of the processes that `step` starts and awaits, the median of three times."""
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        step()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return sorted(used)[1]


def fill(state: Path, jobs: int) -> None:
    """Leave what so many jobs leave that ended; every tenth had 33 replicas."""
    store = Store.open(state / "gpusched.db")
    wish = submission()
    with store.transaction():
        for number in range(jobs):
            directory = claim_directory(state, "run", after=number)
            complete(directory)
            last = ended_status(directory, 33 if number % 10 == 0 else 1)
            directory.spec.write_bytes(msgspec.json.encode(JobSpec(id=last.id, workload="run", replicas=())))
            directory.leave_status(last)
            directory.clear_tmp()
            job = Job(
                id=last.id,
                run_dir=last.run_dir,
                created=last.created,
                submission=wish,
                state=last.state,
                started=last.created,
                ended=last.ended,
                last=last,
            )
            store.add(job)
    store.close()


def ended_status(directory: JobDirectory, replicas: int) -> JobStatus:
    """Return the last status of a job that succeeded."""
    now = round(time.time(), 3)
    return JobStatus(
        id=directory.path.name,
        workload="run",
        state=JobState.SUCCEEDED,
        counts=(replicas,),
        run_dir=str(directory.path),
        simulated=True,
        machine=MACHINE,
        created=now,
        ended=now,
        replicas=tuple(
            ReplicaStatus(
                name=f"command.{rank}",
                role="command",
                state=ReplicaState.EXITED,
                started=now,
                device_index=rank % 4,
                device_uuid=f"GPU-{rank % 4:032x}",
                limit_mib=1100,
                share_mib=1550,
                exit=ExitReason(kind="completed"),
                since=now,
                log=str(directory.log(f"command.{rank}")),
                usage=(Usage(attempt=0, seconds=60, share_mib=1550, device_mib=900, host_mib=400, cpu_s=50),),
            )
            for rank in range(replicas)
        ),
    )


def main() -> None:
    """Measure, and print what came out."""
    typed = arguments(
        __doc__,
        ("--jobs", 500, "how many jobs are submitted"),
        ("--short", 300, "how many jobs run that do nothing"),
        ("--ended", 10_000, "how many jobs ended before"),
    )
    with running_daemon() as daemon:
        results = submit_many(daemon, typed.jobs)
    print_results([*results, *many_short(typed.short), *many_ended(typed.ended)], as_json=typed.json)


if __name__ == "__main__":
    main()
