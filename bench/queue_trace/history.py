"""What predictions cost where the store has very many jobs that have ended."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from bench.queue_trace.ours import submission_of
from bench.queue_trace.trace import Task, arrivals
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.scheduling.expectations import Expectations
from gpusched.storage.job import Job
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store

__all__ = ["prediction_times"]

_NEW = 1000


def prediction_times(tasks: Sequence[Task], ended: int, seed: int) -> dict[str, float]:
    """Return the CPU time (ms) that predictions take after so many jobs: at the daemon's start, and one of them."""
    coming = arrivals(tasks, 8, 0.9, ended + _NEW, seed)
    jobs = [
        Job(id=f"run-{one.number}", run_dir=f"/{one.number}", created=one.came, submission=submission_of(one))
        for one in coming
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "gpusched.db")
        with store.transaction():
            for job, one in zip(jobs[:ended], coming, strict=False):
                store.add(_over(job, one.came, one.task.run_s))
        table, began = JobTable(store), time.process_time()
        expectations = Expectations(table)
        start = time.process_time() - began
        times = [_seconds(expectations, job) for job in jobs[ended:]]
        store.close()
    return {"at the start": 1000 * start, "each": 1000 * sum(times) / len(times)}


def _over(job: Job, began: float, run_s: float) -> Job:
    replica = ReplicaStatus(name="command.0", role="command", state=ReplicaState.EXITED, started=began)
    last = JobStatus(
        id=job.id,
        workload="run",
        state=JobState.SUCCEEDED,
        counts=(1,),
        replicas=(replica,),
        run_dir=job.run_dir,
        ended=began + run_s,
    )
    return replace(job, state=JobState.SUCCEEDED, started=began, ended=began + run_s, last=last)


def _seconds(expectations: Expectations, job: Job) -> float:
    began = time.process_time()
    expectations.expected(job)
    return time.process_time() - began
