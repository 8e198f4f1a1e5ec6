"""Measure placement and queue on the openb trace: `python -m bench.queue_trace WHAT`.

saturation: tasks come and never end. queue: jobs come by chance, with the run times of the trace, and end. frontier:
that, for several bounds on the delay of a head. predictions: how near they are to the run times. pass, history: the CPU
time of one pass over the queue, and of a prediction after very many jobs. All but these two are in simulated time: a
busy host changes nothing.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from bench.queue_trace.experiments import (
    FRONTIER,
    POPULATIONS,
    QUEUES,
    Contender,
    pass_times,
    predictions,
    saturation,
    waits,
)
from bench.queue_trace.history import prediction_times
from bench.queue_trace.page import Measured, Row, of_seeds, store
from bench.queue_trace.trace import TRACE, Task, read_trace
from bench.report import write_page

_Measure = Callable[[argparse.Namespace, Sequence[Task], int], Iterator[Row]]


def _saturation(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    name = "shares of a GPU only" if typed.shares else typed.trace.name.split(".")[0].removeprefix("openb_pod_list_")
    for devices in typed.devices:
        yield {"devices": devices, "tasks": name}, saturation(tasks, devices, seed)


def _waits(queues: Sequence[Contender], typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    chosen = [one for one in queues if not typed.only or one.name in typed.only]
    for devices in typed.devices:
        for load in typed.load:
            for name, found in waits(chosen, tasks, devices, load, typed.jobs, seed):
                yield {"devices": devices, "load": load, "queue": name}, found


def _predictions(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for name, spread in POPULATIONS.items():
        yield {"commands": name}, predictions(tasks, typed.jobs, seed, spread)


def _passes(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for devices in typed.devices:
        for waiting in typed.waiting:
            for limits in ("none", "x1-5"):
                found = pass_times(tasks, devices, waiting, seed, limits)
                yield {"devices": devices, "waiting": waiting, "limits": limits}, found


def _history(typed: argparse.Namespace, tasks: Sequence[Task], seed: int) -> Iterator[Row]:
    for ended in typed.ended:
        yield {"ended": ended}, prediction_times(tasks, ended, seed)


_MEASURES: Final[Mapping[str, _Measure]] = {
    "saturation": _saturation,
    "queue": partial(_waits, QUEUES),
    "frontier": partial(_waits, FRONTIER),
    "predictions": _predictions,
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
        texts = [f"{name} {mean:.4g} ± {half:.2g}" for name, (mean, half) in row.figures.items()]
        lines.append(" | ".join([*map(str, row.of.values()), *texts]))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("bench.queue_trace", description=__doc__)
    parser.add_argument("what", choices=_MEASURES)
    parser.add_argument("--trace", type=Path, default=TRACE, help="an openb pod list, .csv or .csv.gz")
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0, help="with --write: add to what these were measured with")
    parser.add_argument("--load", type=float, nargs="+", default=[0.9, 1.1])
    parser.add_argument("--jobs", type=int, default=2000, help="how many jobs come")
    parser.add_argument("--waiting", type=int, nargs="+", default=[500, 10_000], help="for pass: how many jobs wait")
    parser.add_argument("--ended", type=int, nargs="+", default=[100_000], help="for history: how many jobs have ended")
    parser.add_argument("--most-gpus", type=int, default=8, help="leave out tasks that ask for more")
    parser.add_argument("--shares", action="store_true", help="only tasks that ask for a part of a device")
    parser.add_argument("--only", nargs="+", default=[], help="only the queues of these names")
    parser.add_argument("--processes", type=int, default=None, help="how many at a time; pass, history: always one")
    parser.add_argument("--write", action="store_true", help="write docs/queue.json and docs/benchmarks.md")
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table."""
    typed = arguments()
    measure, seeds = partial(rows_of, typed), range(typed.first_seed, typed.first_seed + typed.seeds)
    if typed.what in ("pass", "history"):
        rows = [row for seed in seeds for row in measure(seed)]
    else:
        with ProcessPoolExecutor(typed.processes) as pool:
            rows = [row for found in pool.map(measure, seeds) for row in found]
    measured = of_seeds(rows)
    print(table(measured))
    if typed.write:
        store(typed.what, measured, first_seed=typed.first_seed)
        write_page()


if __name__ == "__main__":
    main()
