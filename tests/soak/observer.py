"""The invariants of a soak, checked from outside: /proc, lease files, the ledger, status files, and `ps --json`."""

import contextlib
import json
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.soak.gpus import PLANNABLE_MIB
from tests.soak.host import Host
from tests.soak.jobs import ENDED, Job, Jobs
from tests.soak.journal import Journal
from tests.soak.leases import overcommitted, read_held
from tests.soak.processes import Process, processes, shares

__all__ = ["Observer"]

BOUND_S: Final = 60.0
"""How long something may outlive its job; the product takes seconds, so only what hangs meets this."""

SIMULATED_MIB: Final = 16384 - 16384 * 2 // 100
MANY: Final = "full disk", "full inodes", "reboot"


class Observer:
    """Watches one host. Each check counts itself in the journal, so that the report shows what was looked at."""

    def __init__(self, host: Host, jobs: Jobs, journal: Journal) -> None:
        self.host, self.jobs, self.journal = host, jobs, journal
        self._terminal: dict[str, str] = {}
        self._over: dict[str, float] = {}  # job id: when it was first seen to have ended
        self._zombies: dict[int, float] = {}
        self._reported: set[str] = set()
        self._logs: dict[Path, int] = {}
        self.told: dict[str, dict[str, Any]] = {}

    # ---- leases ----

    def check_leases(self) -> None:
        """No share is held twice; a share that is over-committed at two readings in a row was so in between."""
        for folder, most in ((self.host.leases, PLANNABLE_MIB), (self.host.state / "simulated-leases", SIMULATED_MIB)):
            self.journal.checks["no share is held twice"] += 1
            for device, held in overcommitted(read_held(folder), most):
                if set(held) <= read_held(folder):
                    self._once("no share is held twice", f"{device}: {held}")

    def check_leases_are_free(self) -> None:
        """A job that has ended holds nothing."""
        self.journal.checks["leases are free after the end"] += 1
        held = {
            one.job: one
            for folder in (self.host.leases, self.host.state / "simulated-leases")
            for one in read_held(folder)
        }
        for job in self._long_over(held):
            self._once("leases are free after the end", f"{job}: {held[job]}")

    # ---- processes ----

    def check_processes(self) -> list[Process]:
        """No process outlives its job; none of the product's children stays a zombie."""
        self.journal.checks["no process outlives its job"] += 1
        seen = list(processes(self.host.root))
        by_token = {one.token: one for one in seen if one.token}
        guards = {Path(one.run_dir).name: one for one in seen if one.role == "job"}
        for token, process in by_token.items():
            job = self.jobs.all.get(token)
            if job is not None and job.id and self._long_over([job.id]) and _lives(process):
                self._once(
                    "no process outlives its job",
                    f"{token} ({job.id}, {job.state}): {process.pid} {process.command[:200]}",
                )
        for name in self._long_over(guards):
            if _lives(guards[name]):
                self._once(
                    "no supervisor or guard outlives its job", f"{name}: {guards[name].pid} {guards[name].command}"
                )
        self._check_zombies(seen)
        self._check_shares(seen)
        return seen

    def _check_shares(self, seen: list[Process]) -> None:
        """What the processes were granted fits, too, whatever became of the lease files; guards that live hold it."""
        for device, held in shares(seen).items():
            alive = {name: mib for name, (mib, pid) in held.items() if self._is_undisturbed(name[0]) and _is_there(pid)}
            most = PLANNABLE_MIB if device.startswith("GPU-cafe") else SIMULATED_MIB
            if sum(alive.values()) > most:
                self._once("no share is held twice", f"{device} is promised to processes: {alive}")

    def _is_undisturbed(self, job_id: str) -> bool:
        job = self.jobs.by_id.get(job_id)
        return job is not None and not job.excused

    def _check_zombies(self, seen: list[Process]) -> None:
        ours = {one.pid: one for one in seen if one.role}
        zombies = {one.pid: one for one in seen if one.state == "Z" and one.parent in ours}
        self._zombies = {pid: self._zombies.get(pid, time.monotonic()) for pid in zombies}
        for pid, since in self._zombies.items():
            if time.monotonic() - since > BOUND_S:
                self._once("no zombies", f"{pid} below {ours[zombies[pid].parent].command[:200]}")

    # ---- states ----

    def heed(self, listed: Iterable[dict[str, Any]]) -> None:
        """Compare what `ps --json` lists with what is known of each job."""
        self.journal.checks["terminal states are never left"] += 1
        self.jobs.name_by_ledger()
        for one in listed:
            self.told[one["id"]] = one
            job = self._known(one)
            was = self._terminal.get(one["id"])
            if was is not None and was != one["state"] and not self._is_known(one["id"], one["state"]):
                self._once("terminal states are never left", f"{one['id']} was {was}, is {one['state']}")
            if one["state"] in ENDED:
                self._terminal[one["id"]] = one["state"]
                self._over.setdefault(one["id"], time.monotonic())
            if job is not None:
                job.state = one["state"]
                self._check_end(job, one)

    def _is_known(self, name: str, state: str) -> bool:
        """Whether a limit of the product or of the soak explains that a job seems to have left its terminal state.

        Without a daemon a job seems to wait that was cancelled before it started while the disk was full.
        """
        seen = self._over.get(name, 0.0)
        return bool(state == "queued" and self.journal.during(seen - 30, seen, "full disk", "full inodes"))

    def check_files(self) -> None:
        """The status file of a job agrees with the terminal state that `ps` listed."""
        self.journal.checks["status files agree with ps"] += 1
        for name in list(self._terminal)[-300:]:
            job = self.jobs.by_id.get(name)
            excused = job is None or job.excused
            with contextlib.suppress(OSError, ValueError):
                path = self.host.state / "jobs" / name / "status.json"
                state = json.loads(path.read_text())["state"] if path.is_file() else self._terminal[name]
                if state != self._terminal[name] and not excused:
                    self._once("status files agree with ps", f"{name}: {state}, ps: {self._terminal[name]}")

    def _known(self, one: dict[str, Any]) -> Job | None:
        job = self.jobs.all.get(one.get("name") or "") or self.jobs.by_id.get(one["id"])
        if job is None:
            return None
        if job.id is None:
            self.jobs.name_id(job, one["id"])
        elif job.id != one["id"]:
            self._once("a submission is one job", f"{job.token} is {job.id} and {one['id']}")
        return job

    def _check_end(self, job: Job, one: dict[str, Any]) -> None:
        self._check_starts(job, one)
        if one["state"] not in ENDED or job.checked:
            return
        job.checked, job.ended = True, time.monotonic()
        self.journal.done[f"job {job.kind}: {one['state']}"] += 1
        first = self.jobs.all.get(job.waits_for or "")
        excused = job.excused or (first and first.excused) or self.journal.during(job.submitted, job.ended, *MANY)
        if not excused and job.expected and one["state"] not in job.expected:
            self._once("jobs end as their commands do", f"{job.token}: {_brief(one)}, expected {job.expected}")
        if not excused and job.ends is not None and one["state"] in ("succeeded", "failed"):
            for replica in one["replicas"]:
                end = replica["exit"] or {}
                if (end.get("kind"), end.get("code") or end.get("signal") or 0) != job.ends:
                    self._once("exit codes match", f"{job.token}: {_brief(one)}, expected {job.ends}")
        if one["state"] == "succeeded" and job.ends is not None and not self.jobs.ledger.starts[job.token]:
            self._once("every job that succeeded has run", f"{job.token}: {_brief(one)}")

    def _check_starts(self, job: Job, one: dict[str, Any]) -> None:
        self.journal.checks["every job runs once"] += 1
        most = 1 + (one["attempt"] if job.requeue else 0)
        for (name, replica, attempt), times in self.jobs.ledger.starts[job.token].items():
            if times > most or name != one["id"]:
                self._once(
                    "every job runs once",
                    f"{job.token}: {name} {replica} attempt {attempt} started {times} times, {_brief(one)}",
                )

    # ---- logs, files, the database ----

    def check_logs(self) -> None:
        """No traceback in the daemon's log or in a supervisor's; each file is read on from where it was read."""
        self.journal.checks["no traceback in a log"] += 1
        recent = list(self.host.state.glob("jobs/*/logs/supervisor.log")) if len(self._logs) < 400 else []
        known = [
            self.host.state / "jobs" / job.id / "logs" / "supervisor.log"
            for job in list(self.jobs.by_id.values())[-100:]
            if job.id
        ]
        for path in {self.host.state / "daemon.log", *recent[-100:], *known}:
            with contextlib.suppress(OSError):
                self._check_log(path)

    def _check_log(self, path: Path) -> None:
        if not path.is_file():
            return
        at = self._logs.get(path, 0)
        size = path.stat().st_size
        with path.open(errors="replace") as file:
            file.seek(at if at <= size else 0)
            text = file.read()
        self._logs[path] = size
        found = re.search(r"[Ii]nternal error|Traceback", text)
        if found:
            self.journal.violation("no traceback in a log", f"{path}: {text[max(found.start() - 200, 0) :][:2000]}")

    def check_left_files(self) -> None:
        """No temporary file, and no socket, of a job that ended long ago."""
        self.journal.checks["no stray files"] += 1
        for name in self._long_over(list(self._terminal)[-300:]):
            job = self.jobs.by_id.get(name)
            if job is None or job.excused or self.journal.during(job.submitted, job.ended or 0.0, *MANY):
                continue
            folder = self.host.state / "jobs" / name
            stray = [*folder.glob("*.tmp"), *([folder / "tmp"] if (folder / "tmp").exists() else [])]
            stray += list(self.host.runtime.glob(f"{name}-*"))
            if stray and job.kind not in ("odd files", "replaces its status"):
                self._once("no stray files", f"{name}: {[str(path) for path in stray]}")

    def check_database(self) -> None:
        """With the daemon stopped: SQLite finds nothing wrong, and every acknowledged job is in it, once."""
        self.journal.checks["the database is sound"] += 1
        with tempfile.TemporaryDirectory() as folder:
            for path in self.host.state.glob("gpusched.db*"):
                if path.is_file():
                    shutil.copy(path, folder)
            connection = sqlite3.connect(Path(folder) / "gpusched.db")
            try:
                verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
                states = dict(connection.execute("SELECT id, state FROM jobs"))
            except sqlite3.Error as error:
                verdict, states = str(error), {}
            finally:
                connection.close()
        if verdict != "ok":
            self.journal.violation("the database is sound", verdict)
        missing = [job.id for job in self.jobs.all.values() if job.acknowledged and job.id not in states]
        if missing:
            self._once("no acknowledged job is lost", f"not in the database: {missing}")
        for name, state in states.items():
            if self._terminal.get(name, state) != state:
                self._once(
                    "terminal states are never left", f"{name} was {self._terminal[name]}, in the database {state}"
                )

    def finish(self) -> None:
        """After all have ended: nothing acknowledged is lost, whatever was started is listed."""
        self.jobs.ledger.read()
        lost = [job.token for job in self.jobs.all.values() if job.acknowledged and job.id not in self.told]
        if lost:
            self.journal.violation("no acknowledged job is lost", str(lost))
        for token, starts in self.jobs.ledger.starts.items():
            ids = {name for name, _, _ in starts}
            if len(ids) > 1 or not ids <= set(self.told):
                self.journal.violation("every job runs once", f"{token} ran as {ids}")
        never = [
            job.token
            for job in self.jobs.all.values()
            if job.acknowledged and not job.excused and job.state not in ENDED
        ]
        if never:
            self.journal.violation("every job ends", str(never))

    def _long_over(self, names: Iterable[str]) -> list[str]:
        now = time.monotonic()
        return [name for name in names if now - self._over.get(name, now) > BOUND_S]

    def _once(self, invariant: str, details: str) -> None:
        key = f"{invariant}: {details[:60]}"
        if key not in self._reported:
            self._reported.add(key)
            self.journal.violation(invariant, details)


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _lives(process: Process) -> bool:
    """Whether that process is still there and no zombie, some moments later."""
    time.sleep(0.05)
    return any(one.pid == process.pid and one.command == process.command and one.state != "Z" for one in processes())


def _brief(one: dict[str, Any]) -> str:
    replicas = [(each["name"], each["state"], each["exit"], each["restarts"]) for each in one["replicas"]]
    return f"{one['id']} {one['state']} attempt {one['attempt']} message {one['message']!r} {replicas}"
