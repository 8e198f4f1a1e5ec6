"""What goes wrong in a soak, on purpose: kills, full disks, clocks, GPUs, hostile peers. Each is undone later."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

import zmq

from tests.soak import argv
from tests.soak.argv import GPUSCHED
from tests.soak.commands import Result
from tests.soak.gpus import COUNT
from tests.soak.jobs import wrapped
from tests.soak.journal import Window
from tests.soak.processes import processes
from tests.soak.stage import Stage

__all__ = ["Trouble"]

DAY: Final = 86400
STEPS: Final = (3600, -3600, 60, -60, 3 * 365 * DAY, -3 * 365 * DAY)


class Trouble:
    """Each method is one kind of harm; `actions` are those that may happen now, with their weights."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.random = stage, stage.random
        self._silent: list[socket.socket] = []
        self._daemon = 0

    def actions(self) -> dict[str, tuple[float, Callable[[], object]]]:
        always: dict[str, tuple[float, Callable[[], object]]] = {
            "a supervisor, guard or replica killed": (8, self.kill_part),
            "a client killed amid a submission": (5, self.kill_client),
            "wall clock stepped": (2, self.step_clock),
            "a lease file removed or emptied": (2, self.lose_lease),
            "memory taken by a stranger": (3, self.foreign_memory),
            "a GPU lost": (2, self.lose),
            "a GPU hangs": (2, self.hang),
            "an Xid or ECC error": (2, self.event),
            "library and driver of two versions": (1, self.mismatch),
            "a job beyond its share": (2, self.overrun),
            "malformed control messages": (2, self.malformed),
            "silent control connections": (1, self.silent),
        }
        if self.stage.host.can_fill:
            always |= {"a full disk": (1.5, lambda: self.fill("disk")), "no inodes": (1.5, lambda: self.fill("inodes"))}
        if self.stage.storm:
            always |= {
                "daemon killed": (12, self.kill_daemon),
                "daemon halted for a while": (4, self.freeze_daemon),
                "daemon stopped and started": (4, self.restart_daemon),
                "everything killed": (1, self.reboot),
            }
        return always

    # ---- kills ----

    def kill_part(self) -> None:
        live = [job for job in self.stage.jobs.live() if not job.excused]
        self.random.shuffle(live)
        for job in live:
            pids = self.stage.pids_of(job)
            if pids:
                name = self.random.choice(sorted(pids))
                job.excused.add(f"{name} killed")
                self.stage.journal.log(f"kill {name} of {job.id}: {pids[name]}")
                _kill(pids[name])
                return

    def lose_lease(self) -> None:
        """Its job runs on, and what it was granted is still not given to another."""
        mine = [path for path in self.stage.host.leases.glob("*.lease") if path.stat().st_uid == os.geteuid()]
        if mine:
            path = self.random.choice(sorted(mine))
            self.stage.journal.log(f"lose {path.name}")
            with contextlib.suppress(FileNotFoundError):
                if self.random.random() < 0.5:
                    path.unlink()
                else:
                    os.truncate(path, 0)

    def kill_client(self) -> None:
        job = self.stage.jobs.new("client killed", ends=("completed", 0), detached=True)
        words = argv.run("none", wrapped(job.token, "exit 0"), name=job.token, detach=True)
        process = self.stage.commands.start(words, "run -d, killed")
        self.stage.later(self.random.uniform(0.05, 0.6), lambda: _kill(process.pid) if process.poll() is None else None)

    def kill_daemon(self) -> None:
        pid = self.stage.host.daemon_pid()
        if pid and not self._busy("daemon"):
            window = self.stage.journal.open("daemon")
            _kill(pid)
            self.stage.later(self.random.uniform(0, 4), lambda: self.start_daemon(window))

    def freeze_daemon(self) -> None:
        pid = self.stage.host.daemon_pid()
        if pid and not self._busy("daemon"):
            window = self.stage.journal.open("daemon")
            os.kill(pid, signal.SIGSTOP)

            def go_on() -> None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                self.start_daemon(window)

            self.stage.later(self.random.uniform(0.3, 6), go_on)

    def restart_daemon(self) -> None:
        if not self._busy("daemon"):
            window = self.stage.journal.open("daemon")
            seconds = self.random.uniform(0, 3)
            again = lambda _: self.stage.later(seconds, lambda: self.start_daemon(window))  # noqa: E731
            self.stage.gpusched("daemon", "stop", label="daemon stop", allowed=(0, 4), then=again)

    def start_daemon(self, window: Window) -> None:
        """Ask for a daemon; the window closes when there is one."""

        def started(result: Result) -> None:
            full = self.stage.journal.during(result.begun, result.ended, "full disk", "full inodes")
            if result.code and full:
                self.stage.journal.note(f"daemon start on a full state directory: code {result.code}")
                self.stage.later(3, lambda: self.start_daemon(window))
                return
            if result.code:
                self.stage.journal.violation("the daemon starts when it is asked to", str(result))
            self.stage.journal.close(window)

        self.stage.commands.start([*GPUSCHED, "daemon", "start"], "daemon start", started)

    def reboot(self) -> None:
        """Kill everything at once but the soak itself; what ran is lost or queued again."""
        if self._busy("daemon") or self._busy("full disk") or self._busy("full inodes"):
            return
        window = self.stage.journal.open("reboot")
        for job in self.stage.jobs.all.values():
            if not job.checked:
                job.excused.add("reboot")
        spared = {os.getpid(), os.getppid(), 1, self.stage.bystander, *self.stage.spared}
        root = str(self.stage.host.root)
        for one in [*processes(), *processes()]:
            if one.pid not in spared and (self.stage.alone or one.environ.get("SOAK_ROOT") == root):
                _kill(one.pid)
        self.stage.later(1, lambda: self.start_daemon(window))

    # ---- the host ----

    def fill(self, what: str) -> None:
        if self._busy("full disk") or self._busy("full inodes"):
            return
        window = self.stage.journal.open(f"full {what}")
        self.stage.host.fill(what)

        def give_back() -> None:
            self.stage.host.fill("")
            self.stage.journal.close(window)

        self.stage.later(self.random.uniform(3, 15), give_back)

    def step_clock(self) -> None:
        if self._busy("clock"):
            return
        window = self.stage.journal.open("clock")
        self.stage.host.clock.step(self.random.choice(STEPS))

        def back() -> None:
            self.stage.host.clock.step(0)
            self.stage.journal.close(window)

        self.stage.later(self.random.uniform(2, 20), back)

    # ---- GPUs ----

    def foreign_memory(self) -> None:
        gpus, index = self.stage.host.gpus, self.random.randrange(COUNT)
        gpus.foreign[index] = (self.stage.bystander, self.random.choice((500, 4000, 15000)))
        self._change("foreign memory", lambda: gpus.foreign.pop(index, None))

    def lose(self) -> None:
        gpus, index = self.stage.host.gpus, self.random.randrange(COUNT)
        if not gpus.troubled():
            gpus.lost.add(index)
            self._change("a lost GPU", lambda: gpus.lost.discard(index))

    def hang(self) -> None:
        gpus, index = self.stage.host.gpus, self.random.randrange(COUNT)
        if not gpus.troubled():
            gpus.hanging.add(index)
            self._change("a hanging GPU", lambda: gpus.hanging.discard(index))

    def mismatch(self) -> None:
        gpus = self.stage.host.gpus
        gpus.mismatch = True
        self._change("mismatch", lambda: setattr(gpus, "mismatch", False), longest=8)

    def event(self) -> None:
        gpus, index = self.stage.host.gpus, self.random.randrange(COUNT)
        if self.stage.host.daemon_pid() != self._daemon:  # a new process takes all events of the file
            self._daemon = self.stage.host.daemon_pid()
            gpus.events.clear()
        gpus.events.append(
            self.random.choice((f"event {index} xid 79", f"event {index} xid 31", f"event {index} xid 48"))
        )
        self._change("an event", lambda: None)

    def overrun(self) -> None:
        """List a job's process with more memory than its share; the daemon ends it."""
        gpus = self.stage.host.gpus
        for job in self.stage.jobs.live():
            one = self.stage.observer.told.get(job.id or "")
            replica = one["replicas"][0] if one and one["replicas"] and not one["simulated"] else None
            if replica and replica["pid"] and replica["device_index"] is not None and not gpus.overrun:
                gpus.overrun[replica["device_index"]] = (replica["pid"], replica["share_mib"] + 3000)
                for each in self.stage.jobs.live():  # what it takes from others may end them, too
                    each.excused.add("overrun")
                self._change("overrun", gpus.overrun.clear)
                return

    def _change(self, name: str, undo: Callable[[], object], longest: float = 25) -> None:
        gpus, window = self.stage.host.gpus, self.stage.journal.open(name)
        gpus.apply()

        def back() -> None:
            undo()
            gpus.apply()
            self.stage.journal.close(window)

        self.stage.later(self.random.uniform(3, longest), back)

    # ---- hostile peers ----

    def malformed(self) -> None:
        """Two hundred messages that mean nothing, among honest questions."""
        for path in self.stage.host.runtime.glob("control-*.sock"):
            with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
                peer.linger = 0
                peer.connect(f"ipc://{path}")
                for _ in range(200):
                    frames = [
                        self.random.randbytes(self.random.randrange(200)) for _ in range(self.random.randrange(1, 6))
                    ]
                    with contextlib.suppress(zmq.Again):
                        peer.send_multipart(frames, zmq.NOBLOCK)
                time.sleep(0.2)
        self.stage.gpusched("ps", label="ps among malformed messages")

    def silent(self) -> None:
        """Fifty connections to each socket of the daemon and of each learner, on which nothing comes."""
        for path in self.stage.host.runtime.glob("*.sock"):
            for _ in range(50):
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                with contextlib.suppress(OSError):
                    one.connect(str(path))
                self._silent.append(one)
        self.stage.gpusched("ps", label="ps among silent connections")
        self.stage.later(self.random.uniform(5, 40), self._hang_up)

    def _hang_up(self) -> None:
        for one in self._silent:
            one.close()
        self._silent.clear()

    def _busy(self, name: str) -> bool:
        return any(window.name in (name, "reboot") and window.end is None for window in self.stage.journal.windows)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
