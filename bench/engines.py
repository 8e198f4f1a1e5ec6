"""How long from a launch to the first step of all of its processes, here and on clusters: `python -m bench.engines`.

Snake with a learner and 24 actors, started on this host and through Slurm or Ray, in turns, with its modules preloaded
and without. The clusters are real ones of three nodes, in network namespaces of this machine (root, and the packages of
CONTRIBUTING.md), so all share its CPUs. A cluster's daemons run in both turns, and the difference is what going through
it adds. A cluster that cannot be had here is left out, and why is said. A process has made its first step when its
learner has published, or it has sent a batch.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from bench.fresh import ROOT
from bench.host import arguments, print_results
from bench.peers.starting import own_state

_ACTORS: Final = 24
_ALL: Final = _ACTORS + 1
_NODES: Final = 3
_END_S: Final = 60.0
_START_S: Final = 400.0

Result = tuple[str, float, str, str]
Cluster = Callable[[Path], AbstractContextManager[Mapping[str, str]]]


@contextlib.contextmanager
def slurm(base: Path) -> Iterator[Mapping[str, str]]:
    """Run a Slurm in `base`; yield what its commands need in their environment."""
    from tests.clusters.slurm import slurm_of_three

    with slurm_of_three(base, soon=False) as cluster:
        yield cluster.environ


@contextlib.contextmanager
def ray(base: Path) -> Iterator[Mapping[str, str]]:
    """Run a Ray in `base`; yield what its drivers need in their environment."""
    from tests.clusters.ray import ray_of_three

    with ray_of_three(base) as cluster:
        yield cluster.environ


_ENGINES: Final[Mapping[str, Cluster]] = {"slurm": slurm, "ray": ray}


def first_steps_s(engine: str, home: Path, environ: Mapping[str, str], *, preload: bool) -> float:
    """Return the seconds from the launch until all processes have made their first step."""
    home.mkdir()
    words = [*_workload(home, preload=preload), "--procs", str(_ACTORS), "--network", "small"]
    if engine != "local":
        words += ["--engine", engine, "--nodes", str(_NODES), "--cpus-per-node", "8", "--gpus-per-node", "0"]
    env = {**os.environ, **own_state(home), **environ}
    began = time.time()
    argv = [sys.executable, "-m", "gpusched", "launch", *words]
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.DEVNULL) as launch:
        try:
            _until(lambda: len(_ready(home)) == _ALL or launch.poll() is not None)
            if len(ready := _ready(home)) < _ALL:
                sys.exit(f"{engine}: only {len(ready)} of {_ALL} processes have made a step before it ended")
            return max(ready) - began
        finally:
            launch.send_signal(signal.SIGINT)
            launch.wait(_END_S)


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not all {_ALL} processes have made a step within {_START_S:.0f} s")
        time.sleep(0.2)


def _workload(home: Path, *, preload: bool) -> list[str]:
    if preload:
        return ["snake"]
    folder = home / "snake"
    folder.mkdir()
    text = (ROOT / "workloads" / "snake" / "workload.toml").read_text()
    (folder / "workload.toml").write_text(re.sub(r"^preload = .*$", "", text, flags=re.MULTILINE))
    return [str(folder / "workload.toml")]


def _ready(home: Path) -> list[float]:
    """Return when each process was ready, in Unix seconds, of those that are."""
    from gpusched.execution.read_jobs import read_job

    found = [*home.glob("state/jobs/*/spec.json")]
    return [one.ready for one in read_job(found[0].parent).replicas if one.ready] if found else []


def measure(engine: str, rounds: int) -> list[Result]:
    """Return the rows of one engine, or none and say why on stderr."""
    from _pytest.outcomes import Skipped

    rows: list[Result] = []
    base = Path(tempfile.mkdtemp(prefix="gpse"))
    try:
        (base / "cluster").mkdir()
        with _ENGINES[engine](base / "cluster") as environ:
            for preload in (True, False):
                took: dict[str, list[float]] = {"local": [], engine: []}
                for number, name in itertools.product(range(rounds), took):
                    home = base / f"{name}{preload:d}{number}"
                    took[name].append(first_steps_s(name, home, environ, preload=preload))
                rows += [_row(engine, name, each, preload=preload) for name, each in took.items()]
    except Skipped as skipped:
        print(f"{engine} is left out: {skipped}", file=sys.stderr)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return rows


def _row(engine: str, name: str, took: list[float], *, preload: bool) -> Result:
    where = f"through {engine}" if name == engine else f"this host, beside an idle {engine}"
    told = f"{min(took):.1f} to {max(took):.1f}" if len(took) > 1 else "one run"
    row = (f"{where}, {'preloaded' if preload else 'each imports'}", sorted(took)[len(took) // 2], "s", told)
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, ("--rounds", 3, "launches of each kind, of which the median counts"))
    rows = [row for engine in _ENGINES for row in measure(engine, options.rounds)]
    print_results(rows, as_json=options.json)


if __name__ == "__main__":
    main()
