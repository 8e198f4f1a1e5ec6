"""Measure placement and queue on the openb trace: `python -m bench.queue_trace saturation|queue|frontier|pass`.

saturation: tasks come and never end. queue: jobs come by chance, with the run times of the trace, and end. frontier:
that, for several bounds on the delay of a head. pass: the CPU time of one pass over the queue. Simulated time, so that
a busy host changes nothing but the last.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.queue_trace.experiments import FRONTIER, QUEUES, pass_times, saturation, waits
from bench.queue_trace.trace import TRACE, read_trace

Row = tuple[dict[str, Any], dict[str, float]]

_QUEUES: Final = {"queue": QUEUES, "frontier": FRONTIER}


def rows_of(typed: argparse.Namespace, seed: int) -> list[Row]:
    """Return the figures of one seed, each with what it is of."""
    return list(_rows(typed, seed))


def _rows(typed: argparse.Namespace, seed: int) -> Iterator[Row]:
    tasks = read_trace(typed.trace, typed.most_gpus)
    if typed.shares:
        tasks = [task for task in tasks if not task.gpus]
    for devices in typed.devices:
        if typed.what == "saturation":
            yield {"devices": devices}, saturation(tasks, devices, seed)
        elif typed.what in _QUEUES:
            chosen = [one for one in _QUEUES[typed.what] if not typed.only or one.name.startswith(tuple(typed.only))]
            for load in typed.load:
                for name, found in waits(chosen, tasks, devices, load, typed.jobs, seed):
                    yield {"devices": devices, "load": load, "queue": name}, found
        else:
            for waiting in typed.waiting:
                for limits in ("none", "x1-5"):
                    found = pass_times(tasks, devices, waiting, seed, limits)
                    yield {"devices": devices, "waiting": waiting, "limits": limits}, found


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95 % confidence interval of the mean, by the normal distribution; 0 for one value."""
    return 1.96 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def table(rows: Sequence[Row]) -> str:
    """Return the means and their intervals over all seeds, a line each."""
    found: dict[tuple[object, ...], dict[str, list[float]]] = {}
    for labels, values in rows:
        for name, value in values.items():
            found.setdefault(tuple(labels.values()), {}).setdefault(name, []).append(value)
    lines = []
    for key, columns in found.items():
        texts = [f"{name} {statistics.fmean(each):.4g} ± {half_width(each):.2g}" for name, each in columns.items()]
        lines.append(" | ".join([*map(str, key), *texts]))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("bench.queue_trace", description=__doc__)
    parser.add_argument("what", choices=("saturation", "queue", "frontier", "pass"))
    parser.add_argument("--trace", type=Path, default=TRACE, help="an openb pod list, .csv or .csv.gz")
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--load", type=float, nargs="+", default=[0.9, 1.1])
    parser.add_argument("--jobs", type=int, default=2000, help="how many jobs come")
    parser.add_argument("--waiting", type=int, nargs="+", default=[500, 10_000], help="for pass: how many jobs wait")
    parser.add_argument("--most-gpus", type=int, default=8, help="leave out tasks that ask for more")
    parser.add_argument("--shares", action="store_true", help="only tasks that ask for a part of a device")
    parser.add_argument("--only", nargs="+", default=[], help="only the queues whose names begin so")
    parser.add_argument("--processes", type=int, default=None, help="how many at a time; pass: always one")
    parser.add_argument("--json", type=Path, help="also write a line for each seed there")
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table."""
    typed = arguments()
    measure, rows = partial(rows_of, typed), list[Row]()
    if typed.what == "pass":
        rows = [row for seed in range(typed.seeds) for row in measure(seed)]
    else:
        with ProcessPoolExecutor(typed.processes) as pool:
            rows = [row for found in pool.map(measure, range(typed.seeds)) for row in found]
    if typed.json:
        typed.json.write_text("".join(json.dumps({**labels, **values}) + "\n" for labels, values in rows))
    print(table(rows))


if __name__ == "__main__":
    main()
