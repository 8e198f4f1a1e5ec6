"""Measure placement and queue on the openb trace: `python -m bench.queue_trace WHAT`.

saturation: tasks come and never end. queue: jobs come by chance, with the run times of the trace, and end. frontier:
that, for several bounds on the delay of a head. between: with a pass each minute between, too. stream: with shares of a
device alone, and now and then a job for all devices. predictions: how near they are to the run times. forecasts: how
often jobs start when `gpusched why` foretells it. pass, history: the CPU time of one pass over the queue, and of a
prediction after very many jobs. All but these two are in simulated time: a busy host changes nothing.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from bench.queue_trace.experiments import (
    BETWEEN,
    CROWDS,
    FRONTIER,
    POPULATIONS,
    QUEUES,
    STREAM,
    Contender,
    forecasts,
    pass_times,
    predictions,
    saturation,
    shares_and_whole_hosts,
    waits,
)
from bench.queue_trace.history import prediction_times
from bench.queue_trace.results import Measured, Row, load, of_seeds, store
from bench.queue_trace.trace import TRACE, Task, read_trace
from bench.report import write_page

_JOBS: Final = (2000, 6000)
_FEW_DEVICES: Final = 8

_Measure = Callable[[argparse.Namespace, Sequence[Task], int], Iterator[Row]]


def _saturation(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    name = "shares of a GPU only" if typed.shares else typed.trace.name.split(".")[0].removeprefix("openb_pod_list_")
    for devices in typed.devices:
        yield {"devices": devices, "tasks": name}, saturation(tasks, devices, seed)


def _waits(
    queues: Sequence[Contender],
    typed: argparse.Namespace,
    tasks: Sequence[Task],
    seed: int,
    *,
    mixed: Callable[[Sequence[Task], int], Sequence[Task]] = lambda tasks, _: tasks,
) -> Iterator[Row]:
    chosen = [one for one in queues if not typed.only or one.name in typed.only]
    for devices in typed.devices:
        coming = mixed(tasks, devices)
        for busy in typed.load:
            jobs = _jobs(typed, devices)
            for name, found in waits(chosen, coming, devices, busy, jobs, seed):
                yield {"devices": devices, "load": busy, "jobs": jobs, "queue": name}, found


def _jobs(typed: argparse.Namespace, devices: int) -> int:
    return int(typed.jobs or _JOBS[devices > _FEW_DEVICES])


def _predictions(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for name, people in POPULATIONS.items():
        yield {"commands": name}, predictions(tasks, _jobs(typed, 8), seed, people)


def _forecasts(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for devices in typed.devices:
        for busy in typed.load:
            for name, people in POPULATIONS.items():
                jobs = _jobs(typed, devices)
                found = forecasts(tasks, devices, busy, jobs, seed, people)
                yield {"devices": devices, "load": busy, "jobs": jobs, "commands": name}, found


def _passes(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for devices in typed.devices:
        for waiting in typed.waiting:
            for limits in ("none", "x1-5"):
                for crowd in typed.only or CROWDS:
                    found = pass_times(tasks, devices, waiting, seed, limits, crowd)
                    yield {"devices": devices, "waiting": waiting, "limits": limits, "needs": crowd}, found


def _history(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for ended in typed.ended:
        yield {"ended": ended}, prediction_times(tasks, ended, seed)


_MEASURES: Final[Mapping[str, _Measure]] = {
    "saturation": _saturation,
    "queue": partial(_waits, QUEUES),
    "frontier": partial(_waits, FRONTIER),
    "between": partial(_waits, BETWEEN),
    "stream": partial(_waits, STREAM, mixed=shares_and_whole_hosts),
    "predictions": _predictions,
    "forecasts": _forecasts,
    "pass": _passes,
    "history": _history,
}


def rows_of(typed: argparse.Namespace, seed: int) -> list[Row]:
    """Return the figures of one seed, each with what it is of."""
    tasks = read_trace(typed.trace, typed.most_gpus)
    if typed.shares:
        tasks = [task for task in tasks if not task.gpus]
    return list(_MEASURES[typed.what](typed, tasks, seed))


def table(rows: Sequence[Measured]) -> str:
    """Return the means and their intervals over all seeds, a line each."""
    lines = []
    for row in rows:
        texts = [f"{name} {row.mean(name):.4g} ± {row.half_width(name):.2g}" for name in row.values]
        lines.append(" | ".join([*map(str, row.of.values()), *texts]))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("bench.queue_trace", description=__doc__)
    parser.add_argument("what", choices=_MEASURES)
    parser.add_argument("--trace", type=Path, default=TRACE, help="an openb pod list, .csv or .csv.gz")
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0, help="with --write: add to the seeds that are there")
    parser.add_argument("--load", type=float, nargs="+", default=[0.9, 1.1])
    parser.add_argument("--jobs", type=int, help="how many jobs come [default: 2000, 6000 to more than 8 devices]")
    parser.add_argument("--waiting", type=int, nargs="+", default=[500, 10_000], help="for pass: how many jobs wait")
    parser.add_argument("--ended", type=int, nargs="+", default=[100_000], help="for history: how many jobs have ended")
    parser.add_argument("--most-gpus", type=int, default=8, help="leave out tasks that ask for more")
    parser.add_argument("--shares", action="store_true", help="only tasks that ask for a part of a device")
    parser.add_argument("--only", nargs="+", default=[], help="only the queues, for pass the crowds, of these names")
    parser.add_argument("--processes", type=int, default=None, help="how many at a time; pass, history: always one")
    parser.add_argument("--write", action="store_true", help="write docs/queue.json and docs/benchmarks.md")
    typed = parser.parse_args()
    other = typed.trace != TRACE or typed.shares or typed.most_gpus != parser.get_default("most_gpus")
    if typed.write and other and typed.what != "saturation":
        parser.error("what is written is of the whole trace: --write goes without --trace, --shares and --most-gpus")
    return typed


def main() -> None:
    """Measure, and print a table."""
    typed = arguments()
    if typed.write:
        load()  # a file that is none is better seen before an hour of measuring
    measure, seeds = partial(rows_of, typed), range(typed.first_seed, typed.first_seed + typed.seeds)
    if typed.what in ("pass", "history"):
        rows = dict(zip(seeds, map(measure, seeds), strict=True))
    else:
        with ProcessPoolExecutor(typed.processes) as pool:
            rows = dict(zip(seeds, pool.map(measure, seeds), strict=True))
    measured = of_seeds(rows)
    print(table(measured))
    if typed.write:
        store(typed.what, measured, add=typed.first_seed > 0)
        write_page()


if __name__ == "__main__":
    main()
