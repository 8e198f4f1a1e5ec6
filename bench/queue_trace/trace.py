"""The tasks of the public openb trace, and streams of jobs that are drawn from them."""

import csv
import gzip
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

__all__ = ["MILLI", "SHAPES", "TRACE", "Arrival", "Limits", "People", "Task", "arrivals", "read_trace"]

MILLI: Final = 1000
"""The parts that a device is counted in."""

TRACE: Final = Path(__file__).with_name("openb_pod_list_default.csv.gz")
_DAY_S: Final = 86_400.0
_EARLIER: Final = 5

Limits = Literal["none", "exact", "x1-5"]
"""The time limits that users type: none, the exact run times, or 1 to 5 times as much."""


class Task(NamedTuple):
    """One task: `gpus` whole devices, or with 0 of them `milli` thousandths of one; it runs for `run_s` seconds.

    `shape` is all that it asked for: CPUs, memory, devices, thousandths.
    """

    gpus: int
    milli: int
    run_s: float = 1.0
    shape: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """How many devices it takes."""
        return self.gpus or self.milli / MILLI


class People(NamedTuple):
    """What people repeat: how far the logarithms of a command's run times deviate, and the part of commands never run.

    No spread: commands are not told apart, and nothing repeats but the shapes of tasks.
    """

    spread: float | None = None
    new: float = 0.0


SHAPES: Final = People()


class Arrival(NamedTuple):
    """A task that comes into the queue at `came` seconds. `limit_s`: the time limit that its user typed, or None.

    `earlier`: how long earlier runs of the same command took, in seconds; None where commands are not told apart.
    """

    number: int
    task: Task
    came: float
    limit_s: float | None = None
    earlier: tuple[float, ...] | None = None


def read_trace(path: Path = TRACE, most_gpus: int = 8, longest_s: float = _DAY_S) -> list[Task]:
    """Return the tasks that ask for a GPU, `most_gpus` at the most; one that never ran lasts as long as the median.

    None lasts longer than `longest_s`. A table without times will do for saturation: each lasts a second. Raises
    OSError for a file that cannot be read, KeyError for another table.
    """
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if 0 < int(row["num_gpu"]) <= most_gpus]
    times = [_seconds(row) for row in rows]
    middle = statistics.median([one for one in times if one > 0] or [1.0])
    return [_task(row, min(seconds or middle, longest_s)) for row, seconds in zip(rows, times, strict=True)]


def _seconds(row: dict[str, str]) -> float:
    """Return how long a task ran, 0 where the table does not say."""
    began = row.get("scheduled_time")
    return float(row["deletion_time"]) - float(began) if began else 0.0


def _task(row: dict[str, str], seconds: float) -> Task:
    gpus, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    size = (0, milli) if gpus == 1 and milli < MILLI else (gpus, MILLI)
    return Task(*size, seconds, tuple(row[name] for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")))


def arrivals(
    tasks: Sequence[Task],
    devices: int,
    load: float,
    jobs: int,
    seed: int,
    limits: Limits = "none",
    people: People = SHAPES,
) -> list[Arrival]:
    """Return a Poisson stream of so many `jobs` that keeps `devices` busy to `load`; alike whatever is typed or known.

    With a spread each job is one of a command that ran five times before, or of a new one: its run time and theirs are
    draws of one lognormal distribution.
    """
    drawn, of_limits, of_runs, of_new = (Random(f"{seed} {what}") for what in ("jobs", "limits", "runs", "new"))
    now, found = 0.0, list[Arrival]()
    rate = load * devices / statistics.fmean(task.size * task.run_s for task in tasks)
    for number in range(jobs):
        now += drawn.expovariate(rate)
        task = drawn.choice(tasks)
        times = {"none": None, "exact": task.run_s, "x1-5": task.run_s * of_limits.uniform(1, 5)}
        earlier = None if people.spread is None else _earlier(task.run_s, people.spread, of_runs)
        found.append(
            Arrival(number, task, now, times[limits], () if earlier and of_new.random() < people.new else earlier)
        )
    return found


def _earlier(run_s: float, spread: float, random: Random) -> tuple[float, ...]:
    middle = run_s / random.lognormvariate(0, spread)
    return tuple(middle * random.lognormvariate(0, spread) for _ in range(_EARLIER))
