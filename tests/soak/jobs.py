"""The jobs of a soak: what each one does, how it is to end, and the ledger that its processes write."""

import shlex
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["ENDED", "SCRIPTS", "Job", "Jobs", "Ledger", "wrapped"]

ENDED: Final = ("succeeded", "failed", "cancelled", "lost")

SCRIPTS: Final = {
    # name: (script, how it ends by itself, or None: it has to be ended)
    "quick": ("exit 0", ("completed", 0)),
    "nap": ("sleep {seconds}", ("completed", 0)),
    "crashes": ("sleep 0.2; exit 3", ("crashed", 3)),
    "killed": ("kill -USR1 $$; sleep 9", ("signalled", 10)),
    "forks twice": (
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 600' &) ; (setsid sh -c '(sleep 600 &)' &) ; sleep 0.3",
        ("completed", 0),
    ),
    "clean environment": ("(env -i setsid sleep 600 &); sleep 0.3", ("completed", 0)),
    "crowd": ("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid sleep 600 &); (sleep 0.1 &); done; sleep 600", None),
    "changing pids": ("while :; do (setsid sh -c 'sleep 0.3; (sleep 0.3 &)' &); sleep 0.15; done", None),
    "deaf": ("trap '' TERM INT HUP; while :; do sleep 1; done", None),
    "stays": ("sleep 600", None),
    "loud": ("head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 200; exit 0", ("completed", 0)),
    "odd files": (
        (
            'cd "$GPUSCHED_RUN_DIR"; mkfifo pipe; ln -s /dev/zero zero; ln -s / root; ln -s loop loop; mkdir -p a/b/c;'
            ' touch "$(printf \'bad\\377name\')" "new\nline"; mkfifo logs/pipe.log; ln -s /dev/zero logs/zero.log;'
            " chmod 0 a/b; echo {{ > result.json; exit 0"
        ),
        ("completed", 0),
    ),
    "stands in the way": (
        'cd "$GPUSCHED_RUN_DIR"; rm -f progress.jsonl orders.jsonl; mkfifo progress.jsonl orders.jsonl; sleep 1',
        ("completed", 0),
    ),
    "replaces its status": (
        'cd "$GPUSCHED_RUN_DIR"; rm -f status.json events.jsonl; mkfifo status.json; ln -s /dev/zero events.jsonl',
        ("completed", 0),
    ),
}


def wrapped(token: str, script: str) -> list[str]:
    """A command that marks its processes with the token, and writes the ledger at its begin and end."""
    entry = f'{token} $GPUSCHED_JOB $GPUSCHED_REPLICA $GPUSCHED_ATTEMPT" >> "$SOAK_LEDGER"'
    body = f"echo \"s {entry}\ntrap 'echo \"e {entry}' EXIT\n{script}"
    return ["env", f"SOAK_TOKEN={token}", "bash", "-c", body]


def as_shell(token: str, script: str) -> str:
    """The same as one line for a workload file."""
    return "exec " + shlex.join(wrapped(token, script))


@dataclass
class Job:
    """One submission. `ends`: how its command ends by itself; `expected` states for a job that nothing disturbed."""

    token: str
    kind: str
    ends: tuple[str, int] | None
    detached: bool
    replicas: int = 1
    restarts: bool = False
    requeue: bool = False
    steady: bool = False
    expected: tuple[str, ...] = ()
    id: str | None = None
    acknowledged: bool = False
    excused: set[str] = field(default_factory=set)
    state: str | None = None
    submitted: float = field(default_factory=time.monotonic)
    ended: float | None = None
    waits_for: str | None = None
    checked: bool = False

    def __post_init__(self) -> None:
        if not self.expected and self.ends is not None:
            self.expected = ("succeeded",) if self.ends[0] == "completed" else ("failed",)


class Ledger:
    """Reads what the jobs have written, from where the last reading ended."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self.starts: dict[str, Counter[tuple[str, str, str]]] = defaultdict(Counter)
        self.ends: dict[str, Counter[tuple[str, str, str]]] = defaultdict(Counter)

    def read(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._at)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode().splitlines():
            kind, token, *rest = line.split(" ")
            book = self.starts if kind == "s" else self.ends
            job, replica, attempt = (*rest, "", "", "")[:3]
            book[token][job, replica, attempt] += 1


class Jobs:
    """All submissions by token."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.all: dict[str, Job] = {}
        self.by_id: dict[str, Job] = {}

    def new(self, kind: str, **fields: object) -> Job:
        token = f"t{len(self.all):05d}-{kind.replace(' ', '-')}"
        job = Job(token=token, kind=kind, **fields)  # type: ignore[arg-type]
        self.all[token] = job
        return job

    def name_id(self, job: Job, job_id: str) -> None:
        job.id = job_id
        self.by_id[job_id] = job

    def name_by_ledger(self) -> None:
        """Read the ledger; a launch in the foreground has no name, its processes write which job they are."""
        self.ledger.read()
        for token, starts in list(self.ledger.starts.items()):
            if (job := self.all.get(token)) is not None and job.id is None:
                self.name_id(job, next(iter(starts))[0])

    def live(self) -> list[Job]:
        """Those that run or wait, as far as is known."""
        return [job for job in self.all.values() if job.id is not None and job.state not in ENDED and not job.steady]
