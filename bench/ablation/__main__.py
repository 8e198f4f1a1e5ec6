"""Learn Snake with one thing changed at a time, three seeds each, and print a table. Takes some three hours.

Each run has a CPU of its own, for a learner and one actor: as many run side by side as there are CPUs. All but the slow
are made for as many steps, beside other work, too; what changes the time that a step takes also for as many minutes,
which needs an idle host. What is learnt is kept in docs/snake-ablation.csv as it comes; a run that is there, of the
same code, is not made again.
"""

import argparse
import ast
import csv
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Final, NamedTuple

from bench.fresh import ROOT
from bench.peers.starting import own_state

__all__ = ["VARIANTS", "changed_workload", "without_texts"]

_KEPT: Final = ROOT / "docs" / "snake-ablation.csv"
_WORKLOAD: Final = ROOT / "workloads" / "snake" / "workload.toml"
_FRAME: Final = ("--inputs", "frame")


class Variant(NamedTuple):
    """What is changed: options of the workload, or one of bench.ablation.changed.

    `other_speed`: a step then takes another time, so that it is compared after as many minutes, too; `slow`: only so.
    """

    name: str
    options: Sequence[str] = ()
    change: str = ""
    other_speed: bool = False
    slow: bool = False


VARIANTS: Final = (
    Variant("as `launch snake` learns"),
    Variant("`paths` without the tip of the tail", change="tip"),
    Variant("`--discount 0.97`", ("--discount", "0.97")),
    Variant("`--discount 0.99`", ("--discount", "0.99")),
    Variant("`--discount 0.998`", ("--discount", "0.998")),
    Variant("trace 0.9, not 0.95", change="trace"),
    Variant("`--entropy 0`", ("--entropy", "0")),
    Variant("rate and entropy stay to the end", change="stay"),
    Variant("rate and entropy fall in the last fifth", change="fifth"),
    Variant("rate and entropy fall from the beginning", change="fall"),
    Variant("`--learning-rate 0.002`", ("--learning-rate", "0.002")),
    Variant("no symmetries", change="symmetries"),
    Variant("rewards not scaled", change="scale"),
    Variant("death costs a fruit", change="death"),
    Variant("hunger is no end of a game", change="hunger"),
    Variant("half of the games begin where another one is", change="curriculum"),
    Variant("each rollout learnt from twice", change="twice", other_speed=True),
    Variant("two layers of 256, not 128", change="wide", other_speed=True),
    Variant("`--rollout 16`", ("--rollout", "16"), other_speed=True),
    Variant("`--games 256`", ("--games", "256"), other_speed=True),
    Variant("`--inputs frame`", _FRAME, other_speed=True),
    Variant("`--inputs frame`, two layers of 256", _FRAME, "wide", other_speed=True),
    Variant("`--inputs frame`, a convolution before the layers", _FRAME, "convolution", other_speed=True, slow=True),
    Variant("`--inputs frame`, and what will still be blocked", _FRAME, "blocked", other_speed=True),
)


class Run(NamedTuple):
    """One run, and what it reached: steps, the mean of 256 greedy games, and the share of full boards, 0 to 1.

    `code`: what was run, as `code_of` has it.
    """

    code: str
    variant: str
    limit: str
    seed: int
    steps: int
    mean: float
    full: float


class Asked(NamedTuple):
    """A run that is to be made; its limit is as on the command line."""

    variant: Variant
    limit: str
    seed: int


def code_of(folders: Sequence[str] = ("workloads/snake", "workloads/common", "bench/ablation")) -> str:
    """Return the beginning of a digest of all that decides how a run learns: code without its docstrings."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        if path != Path(__file__):
            digest.update(without_texts(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:8]


def without_texts(code: str) -> str:
    """Return what a module does as a text, the same whatever its comments, docstrings and layout are."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def kept() -> list[Run]:
    """Return the runs that were made before."""
    if not _KEPT.exists():
        return []
    with _KEPT.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))[1:]
    return [
        Run(code, variant, limit, int(seed), int(steps), float(mean), float(full))
        for code, variant, limit, seed, steps, mean, full in lines
    ]


def keep(run: Run) -> None:
    """Keep a run."""
    new = not _KEPT.exists()
    with _KEPT.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Run._fields] * new + [run])


def learn(asked: Asked, cpu: int) -> Run:
    """Run the workload on one CPU and return what it reached. Raises RuntimeError with what it printed if it fails."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        home = Path(folder)
        workload = changed_workload(home, asked.variant.change)
        words = ("--procs", "1", "--seed", str(asked.seed), *asked.limit.split(), *asked.variant.options)
        argv = ["taskset", "-c", str(cpu), sys.executable, "-m", "gpusched", "launch", str(workload), *words]
        ran = subprocess.run(
            argv, cwd=ROOT, env={**os.environ, **own_state(home)}, check=False, capture_output=True, text=True
        )
        if ran.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {ran.stdout}{ran.stderr}")
        found = json.loads(next(home.glob("state/jobs/*/evaluation.json")).read_text())
    return Run(code_of(), asked.variant.name, asked.limit, asked.seed, found["steps"], found["mean"], found["full"])


def changed_workload(home: Path, change: str) -> Path:
    """Return a workload file below `home` whose programs have this change. Raises ValueError where they are others."""
    text, path = _WORKLOAD.read_text(), home / "snake" / "workload.toml"
    for role in ("learner", "actor") if change else ():
        own = f'"-m", "workloads.snake.{role}"]'
        if text.count(own) != 1:
            raise ValueError(f"{_WORKLOAD} has not one command that ends with {own}")
        text = text.replace(own, f'"-m", "bench.ablation.changed", "{role}", "{change}"]')
    path.parent.mkdir()
    path.write_text(text)
    return path


def learn_all(asked: Sequence[Asked]) -> bool:
    """Make runs, as many side by side as there are CPUs, and keep what they reach; return whether all succeeded."""
    cpus, lock, failed = SimpleQueue[int](), Lock(), list[str]()
    for cpu in sorted(os.sched_getaffinity(0)):
        cpus.put(cpu)

    def one(asked: Asked) -> None:
        cpu = cpus.get()
        try:
            run = learn(asked, cpu)
        except (RuntimeError, OSError) as error:
            failed.append(f"{asked.variant.name}, seed {asked.seed}: {error}")
            return
        finally:
            cpus.put(cpu)
        with lock:
            keep(run)
        print(run, file=sys.stderr, flush=True)

    with ThreadPoolExecutor(cpus.qsize()) as pool:
        list(pool.map(one, asked))
    print("\n".join(failed), file=sys.stderr)
    return not failed


def table(runs: Iterable[Run]) -> str:
    """Return what was reached as a table in Markdown."""
    rows: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        rows.setdefault((run.limit, run.variant), []).append(run)
    order = [variant.name for variant in VARIANTS]
    chosen = sorted((row for row in rows if row[1] in order), key=lambda row: (row[0], order.index(row[1])))
    head = "| changed | limit | steps, million | greedy mean of 97 | of each seed | full boards |"
    return "\n".join((head, "|---|---|--:|--:|---|---|", *(_line(*row, rows[row]) for row in chosen)))


def _line(limit: str, variant: str, runs: Sequence[Run]) -> str:
    steps = statistics.mean(one.steps for one in runs) / 1e6
    runs = sorted(runs, key=lambda one: one.seed)
    each, full = ", ".join(f"{one.mean:.1f}" for one in runs), ", ".join(f"{one.full:.0%}" for one in runs)
    mean = statistics.mean(one.mean for one in runs)
    return f"| {variant} | {limit.removeprefix('--')} | {steps:.1f} | {mean:.1f} | {each} | {full} |"


def main() -> int:
    """Learn with each variant, as Variant has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000_000, help="of each run (default 10 million)")
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="of each run (default 2; 0: none, and no slow variant)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each variant (default 3)")
    parser.add_argument("--table", action="store_true", help="print what was reached before, and learn nothing")
    typed = parser.parse_args()
    compared = [(f"--steps {typed.steps}", [one for one in VARIANTS if not one.slow])]
    if typed.minutes:
        of_other_speed = [one for one in VARIANTS if one.other_speed or one == VARIANTS[0]]
        compared.append((f"--minutes {typed.minutes:g}", of_other_speed))
    asked = [Asked(one, limit, seed) for limit, ones in compared for one in ones for seed in range(typed.seeds)]
    done = typed.table or learn_all(_left(asked))
    print(table(_of_this_code()))
    return 0 if done else 1


def _of_this_code() -> list[Run]:
    code = code_of()
    return [run for run in kept() if run.code == code]


def _left(asked: Sequence[Asked]) -> list[Asked]:
    """Return the runs that were not made before."""
    there = {(run.variant, run.limit, run.seed) for run in _of_this_code()}
    return [one for one in asked if (one.variant.name, one.limit, one.seed) not in there]


if __name__ == "__main__":
    sys.exit(main())
