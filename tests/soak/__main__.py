"""A long mixed life of a real daemon on stand-in GPUs, with its invariants checked from outside all the while.

    python -m tests.soak --hours 2 --seed 7 --out soak-7

See docs/reliability.md. Exit code 1 if anything did not hold.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.driver import Options, Soak
from tests.soak.host import Host
from tests.soak.journal import Journal
from tests.soak.report import plot, report

__all__ = ["soak", "soak_parser"]


def main() -> int:
    options = soak_parser().parse_args()
    if os.environ.get("SOAK_ALONE") != "1" and os.geteuid() == 0 and shutil.which("unshare"):
        namespaces = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*namespaces, "true"], check=False, capture_output=True).returncode == 0:
            os.execvp(  # noqa: S606 (no shell is wanted)
                "unshare", [*namespaces, sys.executable, "-m", "tests.soak.init", *sys.argv[1:]]
            )
    out = Path(options.out or tempfile.mkdtemp(prefix=f"gpusched-soak-{options.seed}-")).absolute()
    out.mkdir(parents=True, exist_ok=True)
    choices = Options(
        seconds=options.hours * 3600, seed=options.seed, per_minute=options.per_minute, harm=options.harm,
        avoid=frozenset(options.avoid),
    )  # fmt: skip
    text, held = soak(out, choices)
    print(f"\n{text}\nthe log, the samples and the plot are in {out}")
    if not held:
        print(f"to repeat it: python -m tests.soak --hours {options.hours} --seed {options.seed}")
    return 0 if held else 1


def soak(out: Path, options: Options) -> tuple[str, bool]:
    """Run one soak, write its report into `out`, and return it with whether everything held."""
    alone = os.environ.get("SOAK_ALONE") == "1"
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    root.chmod(0o755)
    bystander = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
    host = Host(root, can_mount=alone)
    one = Soak(host, out, options, alone=alone, bystander=bystander.pid)
    interrupted = False
    try:
        try:
            one.run()
        except KeyboardInterrupt:
            interrupted = True
            one.journal.note("interrupted by Ctrl-C")
        try:
            one.finish(at_once=interrupted)
        except KeyboardInterrupt:
            one.journal.note("interrupted by Ctrl-C while it ended; the last checks are missing")
        if bystander.poll() is not None:
            one.journal.violation("other processes are left alone", "the bystander has ended")
        return _write(one, out, options)
    finally:
        one.close()
        bystander.kill()
        bystander.wait()
        _kill_what_is_left(str(root))
        _keep(one.journal, host, out)
        host.remove()


def _write(one: Soak, out: Path, options: Options) -> tuple[str, bool]:
    samples = one.measurer.samples
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    title = f"soak, seed {options.seed}, {options.per_minute:g} a minute, {day} UTC, {os.cpu_count()} CPUs"
    text, held = report(one.journal, samples, one.stage.commands.slowest, title)
    (out / "report.md").write_text(text)
    if samples:
        plot(samples, one.journal, out / "soak.png")
    return text, held


def _keep(journal: Journal, host: Host, out: Path) -> None:
    """After a violation the logs, and the directories of the jobs that it names, are kept."""
    if not journal.violations:
        return
    text = "\n".join(journal.violations)
    kept = out / "kept"
    kept.mkdir(exist_ok=True)
    shutil.copy(host.ledger, kept)
    for path in (host.state / "daemon.log", host.state / "daemon.log.1"):
        if path.is_file():
            shutil.copy(path, kept)
    for folder in (host.state / "jobs").iterdir():
        if f"{folder.name} " in text or f"{folder.name}'" in text or f"{folder.name})" in text:
            for path in (*folder.glob("*.json"), *folder.glob("*.jsonl"), *folder.glob("logs/*.log")):
                if path.is_file() and not path.is_symlink():
                    target = kept / folder.name / path.name
                    target.parent.mkdir(exist_ok=True)
                    shutil.copy(path, target)


def _kill_what_is_left(root: str) -> None:
    from tests.soak.processes import processes

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [one.pid for one in processes() if one.environ.get("SOAK_ROOT") == root]
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


def soak_parser() -> argparse.ArgumentParser:
    """The options of `python -m tests.soak`."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="A long mixed life of a real daemon.")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="where log, samples, plot and report go (default: a new directory in /tmp)")
    parser.add_argument("--per-minute", type=float, default=30.0, help="how many things are done in a minute")
    parser.add_argument("--harm", type=float, default=0.15, help="which part of them goes wrong on purpose")
    parser.add_argument("--avoid", action="append", default=[], metavar="KIND", help="a kind of job to leave out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
