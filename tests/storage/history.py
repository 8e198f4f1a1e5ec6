"""Jobs that ended in the past, in a state directory: in the store, and each with a directory, a log and a result."""

import time
from pathlib import Path

from msgspec.structs import replace

from gpusched.execution.directory import JobDirectory, complete
from gpusched.linux.files import make_private
from gpusched.storage.job import Job
from gpusched.storage.store import Store
from tests.storage.records import ended

DAY_S = 86_400


def job_of(state: Path, number: int, days_ago: float) -> Job:
    job, path, end = ended(number), state / "jobs" / f"run-{number}", time.time() - days_ago * DAY_S
    assert job.last is not None
    last = replace(
        job.last,
        run_dir=str(path),
        ended=end,
        replicas=tuple(replace(one, log=str(path / "logs" / f"{one.name}.log")) for one in job.last.replicas),
    )
    return replace(job, run_dir=str(path), ended=end, last=last)


def fill(state: Path, *days_ago: float) -> None:
    """Have jobs run-1, run-2 and so on that ended so long ago, each with a log and a result."""
    make_private(state)
    store = Store.open(state / "gpusched.db")
    with store.transaction():
        for number, days in enumerate(days_ago, 1):
            job = job_of(state, number, days)
            store.add(job)
            directory = JobDirectory(Path(job.run_dir))
            make_private(directory.path)
            complete(directory)
            assert job.last is not None
            directory.leave_status(job.last)
            directory.spec.write_text("{}")
            directory.log("actor.0").write_text("it went well\n")
            (directory.path / "weights").write_text(f"weights of {job.id}")
    store.close()
