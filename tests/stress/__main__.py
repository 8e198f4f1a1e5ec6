"""`scripts/stress-tests N`: run the tests N times in random order beside busy loops; print which failed how often."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

from tests.stress.plugin import ENDS, FAILURES

ROOT: Final = Path(__file__).parent.parent.parent
SIDE: Final = str((os.cpu_count() or 1) + 8)  # more than `make test` has: the loops take their part
SIDE_BY_SIDE: Final = ("-n", SIDE, "--dist", "worksteal")
BUSY: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"
ENDS_WITHIN_S: Final = 120.0
NO_TESTS: Final = 5


class Round(NamedTuple):
    """One run of the tests: the reason of each failed test, and a line for each process that died."""

    number: int
    seed: int
    failures: dict[str, str]
    ends: list[str]

    @property
    def label(self) -> str:
        """Return its name in the table."""
        return f"{self.number} (seed {self.seed})"


def main() -> int:
    """Run, and return 1 if a test failed, 130 after Ctrl-C, else 0. The output stays unless it is 0."""
    typed = arguments()
    for deadly in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deadly, interrupted)  # also where a shell that put this into its background had SIGINT ignored
    logs = Path(tempfile.mkdtemp(prefix="gpusched-stress-"))
    rounds: list[Round] = []
    began, status = time.monotonic(), 0
    print(f"output: {logs}", flush=True)
    try:
        with busy_loops(typed.loops):
            for number in range(typed.rounds):
                rounds.append(Round(number + 1, typed.seed + number, {}, []))
                run_round(rounds[-1], typed.paths, logs)
                print(line_of(rounds[-1], time.monotonic() - began), flush=True)
    except KeyboardInterrupt:
        status = 130
    print(table(rounds))
    status = status or int(any(one.failures or one.ends for one in rounds))
    if status == 0:
        shutil.rmtree(logs)
    return status


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("stress-tests", description=str(__doc__).partition(": ")[2])
    parser.add_argument("rounds", type=int, metavar="N", help="how often")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="which tests; all if there is none")
    seed = random.SystemRandom().randrange(1_000_000)
    parser.add_argument("--seed", type=int, default=seed, help="of the first round; each later one adds 1")
    parser.add_argument("--loops", type=int, default=2, metavar="N", help="how many busy loops run beside [default: 2]")
    return parser.parse_intermixed_args()


def interrupted(_number: int, _frame: FrameType | None) -> NoReturn:
    """End in order."""
    raise KeyboardInterrupt


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep that many CPUs busy. A loop ends with this process, also where that is killed."""
    argv = [sys.executable, "-S", "-c", BUSY, str(os.getpid())]
    loops: list[subprocess.Popen[bytes]] = []
    try:
        loops += [subprocess.Popen(argv, process_group=0) for _ in range(count)]
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_round(found: Round, paths: Sequence[str], logs: Path) -> None:
    """Run the tests once, in the order of the round's seed, and add to the round what it finds."""
    for part, words in enumerate(parts(paths)):
        record, status = logs / f"round-{found.number}-{part}", 0
        record.mkdir()
        try:
            status = run_pytest([*words, "--shuffle", str(found.seed), "--record", str(record)], record / "output")
        finally:  # also where it is interrupted
            failures, ends = lines_of(record / FAILURES), lines_of(record / ENDS)
            found.failures.update({one["test"]: one["reason"] for one in failures})
            found.ends.extend(told_of(one) for one in ends)
        if status not in {0, NO_TESTS} and not (failures or ends):
            found.ends.append(f"pytest itself ended with status {status}: {record / 'output'}")


def parts(paths: Sequence[str]) -> list[list[str]]:
    """Return pytest's arguments: tests on clusters run by themselves, as each fills the host."""
    if not paths:
        return [[*SIDE_BY_SIDE, "--ignore", "tests/clusters"], ["tests/clusters", "-m", "not long"]]
    alone = [path for path in paths if "clusters" in Path(path).parts]
    beside = [path for path in paths if path not in alone]
    return [[*SIDE_BY_SIDE, *beside]] * bool(beside) + [[*alone, "-m", "not long"]] * bool(alone)


def run_pytest(words: Sequence[str], output: Path) -> int:
    """Return the exit status. An interruption ends it in order: Ctrl-C does not reach it, as its group is another."""
    argv = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-q", "-rs"]
    argv += ["--rootdir", str(ROOT), "-p", "tests.stress.plugin", *words]
    with output.open("wb") as file:
        process = subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0
        )
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(ENDS_WITHIN_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
                process.wait()
            raise


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return what the plugin has written."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told_of(end: dict[str, Any]) -> str:
    """Return one line for a process of pytest-xdist that died."""
    status = end["status"]
    by = f"by signal {-status}" if status is not None and status < 0 else f"with exit status {status}"
    met = f", having met {', '.join(end['signals'])}" if end["signals"] else ""
    return f"{end['worker']} (pid {end['pid']}) ended {by}{met}, in {end['test']}"


def line_of(one: Round, seconds: float) -> str:
    """Return one line for a round."""
    came = f"{len(one.failures)} failed" + (f", {len(one.ends)} died" if one.ends else "")
    return f"round {one.label}: {came}, {seconds / 60:.1f} min since the start"


def table(rounds: Sequence[Round]) -> str:
    """Return which tests failed how often, in which rounds, the most frequent first, and what died."""
    by_test: defaultdict[str, list[Round]] = defaultdict(list)
    for one in rounds:
        for test in one.failures:
            by_test[test].append(one)
    lines = [f"rounds: {len(rounds)}, tests that failed: {len(by_test)}"]
    for test, met in sorted(by_test.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"{len(met)} of {len(rounds)}  {test}")
        lines += [f"        round {one.label}: {one.failures[test]}" for one in met]
    lines += [f"round {one.label}: {end}" for one in rounds for end in one.ends]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
