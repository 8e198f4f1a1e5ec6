"""The loop of a soak: now and then somebody does something or something goes wrong, and all the while it is checked."""

import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.soak.argv import GPUSCHED
from tests.soak.commands import Commands, Result
from tests.soak.host import Host
from tests.soak.jobs import ENDED, Jobs, Ledger
from tests.soak.journal import Journal
from tests.soak.leases import read_held
from tests.soak.life import Life
from tests.soak.measure import EVERY_S, Measurer
from tests.soak.neighbour import JOB, Neighbour
from tests.soak.observer import BOUND_S, Observer
from tests.soak.processes import processes
from tests.soak.stage import Stage
from tests.soak.trouble import Trouble

__all__ = ["Options", "Soak"]

CYCLE_S: Final = 1500.0
STORM: Final = 0.3
MOST_LIVE: Final = 24


@dataclass(frozen=True)
class Options:
    """How long and how hard. `per_minute`: things that are done; `harm`: which part of them goes wrong on purpose."""

    seconds: float
    seed: int = 1
    per_minute: float = 30.0
    harm: float = 0.15
    avoid: frozenset[str] = frozenset()
    storm: bool = True


@dataclass
class _Every:
    seconds: float
    action: Callable[[], None]
    next: float = field(default_factory=time.monotonic)


class Soak:
    """One soak on one host; run() and then finish(), also after an interrupt."""

    def __init__(self, host: Host, out: Path, options: Options, *, alone: bool, bystander: int) -> None:
        self.host, self.out, self.options = host, out, options
        self.journal = Journal(out / "soak.log")
        self.jobs = Jobs(Ledger(host.ledger))
        commands = Commands(host.output, host.env, self.journal)
        observer = Observer(host, self.jobs, self.journal)
        chance = random.Random(options.seed)  # noqa: S311 (a seed is to repeat a run)
        self.stage = Stage(host, self.journal, commands, self.jobs, observer, chance, alone, bystander)
        self.life, self.trouble = Life(self.stage, options.avoid), Trouble(self.stage)
        self.measurer = Measurer(host, out / "samples.csv")
        self.neighbour = Neighbour(host.root, host.leases) if os.geteuid() == 0 else None
        if self.neighbour is not None:
            self.stage.spared.add(self.neighbour.pid)
        self._deadline = 0.0
        self._missed = 0
        self._every = [
            _Every(1, observer.check_leases), _Every(1, self._check_daemon), _Every(5, self._list),
            _Every(EVERY_S, self._look), _Every(20, self._devices), _Every(30, observer.check_leases_are_free),
            _Every(30, observer.check_logs), _Every(60, observer.check_left_files), _Every(60, observer.check_files),
            _Every(60, self.life.keep_steady), _Every(10, self._check_neighbour),
            _Every(300, lambda: self._list("--all")),
        ]  # fmt: skip
        if not host.can_fill:
            self.journal.note("no tmpfs could be mounted: full disks and inodes are left out")
        if self.neighbour is None:
            self.journal.note("not root: there is no other user")
        if not alone:
            self.journal.note("no pid namespace: processes that clean their environment are left out")

    def run(self) -> None:
        """Live until the time is up, or too much is wrong."""
        begun, cycle = time.monotonic(), min(CYCLE_S, self.options.seconds / 2)
        self._deadline = begun + self.options.seconds
        window = self.journal.open("daemon")
        self.trouble.start_daemon(window)
        self.life.keep_steady()
        upcoming = begun + 3
        while time.monotonic() < self._deadline and len(self.journal.violations) < 40:
            part = (time.monotonic() - begun) % cycle / cycle
            self.stage.storm = self.options.storm and part > 1 - STORM
            if time.monotonic() >= upcoming:
                self._guarded(self._act)
                upcoming = time.monotonic() + self.stage.random.expovariate(self.options.per_minute / 60)
            self._guarded(self._tick)

    def finish(self, *, at_once: bool) -> None:
        """End all harm, let every job end or stop them `at_once`, and look at what is left."""
        self._line("undoing the harm and waiting until every job has ended")
        self.stage.do_what_is_due(all_of_it=True)
        self._settle(30, lambda: not self._open("daemon", "reboot"))
        window = self.journal.open("daemon")
        self.trouble.start_daemon(window)
        self._settle(60, lambda: window.end is not None)
        self.life.end_steady()
        self._list("--all")
        self._settle(0 if at_once else 240, self._all_ended)
        for job in self.jobs.live():
            job.excused.add("stopped at the end")
        if self.jobs.live():
            self.journal.log(f"still live: {[(job.token, job.state) for job in self.jobs.live()]}")
            self.stage.gpusched("stop", "--all")
        self._settle(120, self._all_ended)
        self._settle(BOUND_S, self._nothing_left)
        self._last_checks()

    def close(self) -> None:
        self.stage.commands.end()
        if self.neighbour is not None:
            self.neighbour.end()

    # ---- what is done ----

    def _guarded(self, step: Callable[[], None]) -> None:
        """A fault of the soak's own ends no run of hours; it counts as a violation."""
        try:
            step()
        except Exception:  # noqa: BLE001 (whatever it is, it goes into the report)
            self.journal.violation("the soak itself is sound", traceback.format_exc())

    def _act(self) -> None:
        harm = self.stage.random.random() < self.options.harm
        actions = self.trouble.actions() if harm else self.life.actions()
        crowded = len(self.jobs.live()) + len(self.stage.commands) > MOST_LIVE
        if crowded and not harm:
            actions = {name: actions[name] for name in ("stop", "ask")}
        names = list(actions)
        name = self.stage.random.choices(names, [actions[each][0] for each in names])[0]
        self.journal.done[f"{'harm' if harm else 'life'}: {name}"] += 1
        self.journal.log(f"{'harm' if harm else 'life'}: {name}")
        actions[name][1]()

    def _tick(self) -> None:
        self.stage.commands.poll()
        self.stage.do_what_is_due()
        for one in self._every:
            if time.monotonic() >= one.next:
                one.action()
                one.next = time.monotonic() + one.seconds
        time.sleep(0.05)

    def _settle(self, seconds: float, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self._tick()

    # ---- what is checked ----

    def _list(self, *words: str) -> None:
        """Ask `ps` for the latest jobs, or for all."""

        def heed(result: Result) -> None:
            self.stage.expect(result, (0,))
            if result.code == 0:
                self.stage.observer.heed(json.loads(result.output)["jobs"])

        self.stage.commands.start([*GPUSCHED, "ps", "--json", *(words or ("--ended", "60"))], "ps --json", heed)

    def _look(self) -> None:
        seen = self.stage.observer.check_processes()
        sample = self.measurer.sample(seen, len(self.jobs.live()), self.life.steady_ids())
        left = max(self._deadline - time.monotonic(), 0) / 60
        self._line(
            f"{sample.time / 60:.1f} min, {left:.1f} left: {len(self.jobs.all)} submitted, {sample.live_jobs} live,"
            f" {sum(self.journal.checks.values())} checks, {len(self.journal.violations)} violations"
        )

    def _check_daemon(self) -> None:
        """Nothing but the soak ends the daemon."""
        self.journal.checks["the daemon stays"] += 1
        missing = not self.host.daemon_pid() and not self._open("daemon", "reboot")
        self._missed = self._missed + 1 if missing else 0
        if self._missed == 3:
            log = self.host.state / "daemon.log"
            self.journal.violation("the daemon stays", log.read_text(errors="replace")[-2000:] if log.exists() else "")
            self.trouble.start_daemon(self.journal.open("daemon"))

    def _devices(self) -> None:
        """Lift the drains of devices that are well again."""

        def heed(result: Result) -> None:
            self.stage.expect(result, (0,))
            if result.code:
                return
            for device in json.loads(result.output)["devices"]:
                drained = (device["problem"] or "").startswith("drained")
                if drained and device["index"] not in self.host.gpus.troubled():
                    self.journal.done["a device drained by the daemon"] += 1
                    self.stage.gpusched("daemon", "undrain", str(device["index"]), label="undrain", allowed=(0, 4, 5))

        self.stage.commands.start([*GPUSCHED, "status", "--json"], "status --json", heed)

    def _open(self, *names: str) -> bool:
        return any(window.end is None and window.name in names for window in self.journal.windows)

    def _all_ended(self) -> bool:
        known = [job for job in self.jobs.all.values() if job.id is not None or job.acknowledged]
        return len(self.stage.commands) <= 2 and all(job.state in ENDED for job in known)

    def _check_neighbour(self) -> None:
        if self.neighbour is not None:
            self.neighbour.check(self.journal)

    def _nothing_left(self) -> bool:
        seen = list(processes(self.host.root))
        return not any(one.token or (one.role == "job" and one.state != "Z") for one in seen)

    def _last_checks(self) -> None:
        self.stage.commands.poll()
        result = self.stage.commands.ask([*GPUSCHED, "ps", "--json", "--all"], "ps --json")
        self.stage.expect(result, (0,))
        if result.code == 0:
            self.stage.observer.heed(json.loads(result.output)["jobs"])
        for check in (self.stage.observer.check_leases, self.stage.observer.check_logs, self.stage.observer.finish):
            check()
        left = [one for one in processes(self.host.root) if one.token or one.role == "job"]
        if left:
            self.journal.violation("no process outlives its job", str([(one.pid, one.command[:100]) for one in left]))
        stop = self.stage.commands.ask([*GPUSCHED, "daemon", "stop"], "daemon stop")
        self.stage.expect(stop, (0,))
        self.stage.observer.check_database()
        self._check_neighbour()
        self._check_directories()

    def _check_directories(self) -> None:
        left = [path.name for path in self.host.runtime.glob("*.sock*") if not path.name.startswith("control-")]
        held = [one for one in read_held(self.host.leases) if one.job != JOB]
        if held:
            self.journal.violation("leases are free after the end", str(held))
        if left:
            self.journal.violation("no stray files", f"in the runtime directory: {left}")

    def _line(self, text: str) -> None:
        if sys.stdout.isatty():
            print(f"\r\033[K{text}", end="", flush=True)
        elif not self.measurer.samples or len(self.measurer.samples) % 6 == 1:
            print(text, flush=True)
