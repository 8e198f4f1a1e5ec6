"""Learn Snake with one thing changed at a time, three seeds each, and print a table. Takes hours of an idle host.

Each run has a CPU of its own, for a learner and one actor: as many run side by side as there are CPUs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from bench.fresh import ROOT
from bench.peers.starting import own_state

__all__: list[str] = []

_FULL: Final = 97
_WORKLOAD: Final = ROOT / "workloads" / "snake" / "workload.toml"


class Variant(NamedTuple):
    """What is changed: options of the workload, or one of bench.ablation.changed.

    `other_speed`: a step then takes another time, so that it is compared after as many steps, too.
    """

    name: str
    options: Sequence[str] = ()
    change: str = ""
    other_speed: bool = False


VARIANTS: Final = (
    Variant("as `launch snake` learns"),
    Variant("`--inputs frame`", ("--inputs", "frame"), other_speed=True),
    Variant("`paths` without the tip of the tail", change="tip"),
    Variant("`--discount 0.97`", ("--discount", "0.97")),
    Variant("`--discount 0.99`", ("--discount", "0.99")),
    Variant("`--discount 0.998`", ("--discount", "0.998")),
    Variant("trace 0.9, not 0.95", change="trace"),
    Variant("`--entropy 0`", ("--entropy", "0")),
    Variant("learning rate and entropy stay", change="constant"),
    Variant("no symmetries", change="symmetries"),
    Variant("rewards not scaled", change="scale"),
    Variant("death costs a fruit", change="death"),
    Variant("hunger is no end of a game", change="hunger"),
    Variant("each rollout learnt from twice", change="twice", other_speed=True),
    Variant("two layers of 256, not 128", change="wide", other_speed=True),
    Variant("`--rollout 16`", ("--rollout", "16"), other_speed=True),
    Variant("`--games 256`", ("--games", "256"), other_speed=True),
)


class Learnt(NamedTuple):
    """What one run reached: steps, the mean of 256 greedy games, and the share of full boards, 0 to 1."""

    steps: int
    mean: float
    full: float


class Row(NamedTuple):
    """A line of the table: a variant, the limit that its runs had, and what they reached."""

    variant: Variant
    limit: Sequence[str]
    learnt: Sequence[Learnt]


def learn(variant: Variant, limit: Sequence[str], seed: int, cpu: int) -> Learnt:
    """Run the workload on one CPU and return what it reached. Exits with what the command printed if it fails."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        home = Path(folder)
        workload = _changed(home, variant.change)
        words = ("--procs", "1", "--seed", str(seed), *limit, *variant.options)
        argv = ["taskset", "-c", str(cpu), sys.executable, "-m", "gpusched", "launch", str(workload), *words]
        ran = subprocess.run(
            argv, cwd=ROOT, env={**os.environ, **own_state(home)}, check=False, capture_output=True, text=True
        )
        if ran.returncode:
            sys.exit(f"{' '.join(argv)}: {ran.stdout}{ran.stderr}")
        found = json.loads(next(home.glob("state/jobs/*/evaluation.json")).read_text())
    return Learnt(found["steps"], found["mean"], found["results"].count(_FULL) / found["games"])


def _changed(home: Path, change: str) -> Path:
    """Return a workload file whose programs have this change."""
    text, path = _WORKLOAD.read_text(), home / "snake" / "workload.toml"
    for role in ("learner", "actor") if change else ():
        text = text.replace(f'"workloads.snake.{role}"]', f'"bench.ablation.changed", "{role}", "{change}"]', 1)
    path.parent.mkdir()
    path.write_text(text)
    return path


def learn_all(variants: Sequence[Variant], limit: Sequence[str], seeds: range) -> list[Row]:
    """Run each variant with each seed, as many side by side as there are CPUs."""
    cpus = SimpleQueue[int]()
    for cpu in sorted(os.sched_getaffinity(0)):
        cpus.put(cpu)

    def one(variant: Variant, seed: int) -> Learnt:
        cpu = cpus.get()
        try:
            learnt = learn(variant, limit, seed, cpu)
        finally:
            cpus.put(cpu)
        print(f"{variant.name}, {' '.join(limit)}, seed {seed}: {learnt}", file=sys.stderr, flush=True)
        return learnt

    with ThreadPoolExecutor(cpus.qsize()) as pool:
        asked = [(variant, [pool.submit(one, variant, seed) for seed in seeds]) for variant in variants]
        return [Row(variant, limit, [run.result() for run in runs]) for variant, runs in asked]


def table(rows: Sequence[Row]) -> str:
    """Return what was reached as a table in Markdown."""
    head = "| changed | limit | steps, million | greedy mean of 97 | of each seed | full boards |"
    return "\n".join((head, "|---|---|--:|--:|---|---|", *map(_line, rows)))


def _line(row: Row) -> str:
    steps = statistics.mean(one.steps for one in row.learnt) / 1e6
    means = [one.mean for one in row.learnt]
    each, full = ", ".join(f"{mean:.1f}" for mean in means), ", ".join(f"{one.full:.0%}" for one in row.learnt)
    limit = " ".join(row.limit).removeprefix("--")
    return f"| {row.variant.name} | {limit} | {steps:.1f} | {statistics.mean(means):.1f} | {each} | {full} |"


def main() -> None:
    """Learn with each variant for as long, then those of another speed for as many steps as the first one made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of each run (default 2)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each variant (default 3)")
    typed = parser.parse_args()
    seeds = range(typed.seeds)
    rows = learn_all(VARIANTS, ("--minutes", str(typed.minutes)), seeds)
    steps = statistics.median(one.steps for one in rows[0].learnt)
    rows += learn_all([one for one in VARIANTS if one.other_speed], ("--steps", str(int(steps))), seeds)
    print(table(rows))


if __name__ == "__main__":
    main()
