"""Random trouble for a real daemon and real, cheap jobs: start, stop, and kill -9 of whatever runs, from one seed.

What must hold is looked at from outside: /proc says which processes hold how much of which device, a ledger that the
jobs write themselves says what was started and how it ended, and both are compared with what the daemon says.

    python -m tests.daemon.chaos --rounds 1000 --seed 7
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gpusched.errors import GpuschedError
from tests.cli.command import Command
from tests.patience import PATIENCE_S, until
from tests.soak.processes import Process, daemon_pid, read_process, shares

__all__ = ["Chaos"]

DEVICES: Final = 2
PLANNABLE_MIB: Final = 15837  # of a 16160 MiB device of the stand-in library, less 2 % of headroom
NEEDS: Final = (
    ("--num-gpus", "0"),
    ("--memory", "2GiB"),
    ("--fraction", "0.4"),
    ("--fraction", "0.5"),
    ("--num-gpus", "1"),
)
ENDS: Final = {"exit 0": ("completed", None), "exit 3": ("crashed", 3), "kill -USR1 $$; sleep 9": ("signalled", 10)}
ENDED: Final = ("succeeded", "failed", "cancelled", "lost")


class Chaos:
    """One run of trouble. `command` is gpusched on a host with two stand-in devices."""

    def __init__(self, command: Command, seed: int) -> None:
        self.command, self.random = command, random.Random(seed)  # noqa: S311 (a seed is to repeat a run)
        self.ledger = command.home / "ledger"
        self.ledger.touch()
        self.expected: dict[str, tuple[str, int | None]] = {}
        self.requeued: set[str] = set()
        self.disturbed: set[str] = set()
        self.front: list[tuple[subprocess.Popen[str], str, str]] = []
        self.done: Counter[str] = Counter()
        self._tag = 0

    # What is done.

    def round(self) -> None:
        """Do one thing at random, and look whether the shares still fit."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, self.submit),
            (2, self.burst),
            (2, self.launch),
            (2, self.run_in_front),
            (3, self.stop_one),
            (1, self.kill_front),
            (2, self.kill_daemon),
            (3, self.kill_daemon_at_a_start),
            (3, self.kill_part),
            (2, self.trouble_fork_server),
            (1, self.freeze_daemon),
        ]
        action = self.random.choices([one for _, one in actions], [weight for weight, _ in actions])[0]
        self.done[action.__name__] += 1
        action()
        self.look()

    def submit(self) -> None:
        """A command in the background: it ends by itself in one of three ways."""
        end = self.random.choice(sorted(ENDS))
        need = self.random.choice(NEEDS)
        requeue = self.random.random() < 0.2
        options = ["-d", *need, "--priority", str(self.random.randrange(3)), *(["--requeue"] if requeue else [])]
        if self.random.random() < 0.1:
            options += ["--hold"]
        told = self.command.run("run", *options, "--json", "--", "sh", "-c", self._script(end))
        assert told.returncode == 0, told.stdout + told.stderr
        job = json.loads(told.stdout)["id"]
        self.expected[job] = ENDS[end]
        if requeue:
            self.requeued.add(job)

    def burst(self) -> None:
        """Several commands at once, so that guards are forked, and perhaps trouble in the midst of them."""
        self.start_daemon()
        ends = [self.random.choice(sorted(ENDS)) for _ in range(4)]
        started = [
            self.command.start("run", "-d", "--num-gpus", "0", "--json", "--", "sh", "-c", self._script(end))
            for end in ends
        ]
        troubled = self.random.random() < 0.5
        for process, end in zip(started, ends, strict=True):
            output, _ = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, output
            self.expected[json.loads(output)["id"]] = ENDS[end]
            if troubled:
                self.trouble_fork_server()

    def launch(self) -> None:
        """A workload of three replicas in the background; they are started again when they are killed."""
        path = self.command.home / "chaos.toml"
        path.write_text(
            'name = "chaos"\n[roles.actor]\ncount = 3\nmemory = { min = "512MiB" }\n'
            f'command = ["sh", "-c", {json.dumps(self._script("exit 0"))}]\n'
            'restart = { policy = "on-failure", max = 2 }\n[job]\nstop_grace = 1\n'
        )
        told = self.command.run("launch", "-d", "--json", "--actor-memory", "3GiB", str(path))
        assert told.returncode == 0, told.stdout + told.stderr
        self.expected[json.loads(told.stdout)["id"]] = ("completed", None)

    def run_in_front(self) -> None:
        """A command in the foreground, which waits for its turn as long as it takes."""
        end = self.random.choice(("exit 0", "exit 3"))
        need = self.random.choice(NEEDS)
        name = f"front-{len(self.front)}"
        process = self.command.start("run", *need, "--name", name, "--", "sh", "-c", self._script(end))
        self.front.append((process, name, end))

    def stop_one(self) -> None:
        """Stop a job that has not ended, perhaps at once."""
        live = [job["id"] for job in self.jobs() if job["state"] not in ENDED]
        if live:
            job = self.random.choice(live)
            self.disturbed.add(job)
            told = self.command.run("stop", "--no-wait", *self.random.choice(([], ["--kill"])), job)
            assert told.returncode in (0, 4), told.stdout + told.stderr  # 4: it has just ended

    def kill_front(self) -> None:
        """Kill -9 a command line that waits for its turn, or stands for its command."""
        live = [process for process, _, _ in self.front if process.poll() is None]
        if live:
            self.random.choice(live).kill()

    def kill_daemon(self) -> None:
        """Kill -9 the daemon, and start it again now or when the next command needs it."""
        pid = self.daemon_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: self.daemon_pid() != pid, "the daemon that was killed is gone")
        if self.random.random() < 0.5:
            self.start_daemon()

    def kill_daemon_at_a_start(self) -> None:
        """Kill -9 the daemon in the moments in which it takes in a job, saves it and starts it."""
        self.start_daemon()
        pid, end = self.daemon_pid(), self.random.choice(sorted(ENDS))
        process = self.command.start("run", "-d", "--num-gpus", "0", "--json", "--", "sh", "-c", self._script(end))
        if self.random.random() < 0.7:  # most of it is the command's own start: rather wait for that
            output, _ = process.communicate(timeout=PATIENCE_S)
        time.sleep(self.random.random() * 0.06)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: self.daemon_pid() != pid, "the daemon that was killed is gone")
        if process.returncode is None:
            output, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode == 0:  # 4: the daemon was gone before it could answer
            self.expected[json.loads(output)["id"]] = ENDS[end]

    def freeze_daemon(self) -> None:
        """Stop the daemon for a moment, as a swapping host does."""
        pid = self.daemon_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.random.random() / 4)
                os.kill(pid, signal.SIGCONT)

    def kill_part(self) -> None:
        """Kill -9 a guard, a supervisor, or a replica."""
        live = [job for job in self.jobs() if job["supervisor_pid"] and job["state"] not in ENDED]
        if not live:
            return
        job = self.random.choice(live)
        supervisor = job["supervisor_pid"]
        replicas = [one["pid"] for one in job["replicas"] if one["pid"]]
        victim = self.random.choice([supervisor, one.parent if (one := _process(supervisor)) else 0, *replicas])
        self.disturbed.add(job["id"])
        if victim and self._is_of(victim, job["id"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)

    def trouble_fork_server(self) -> None:
        """Kill -9 the fork server, if there is one, or stop it for a moment."""
        for pid in self.command.running():
            with contextlib.suppress(OSError):
                if b"gpusched.supervisor.fork_server" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    continue
                self.done["fork server met"] += 1
                if self.random.random() < 0.5:
                    os.kill(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(self.random.random() / 8)
                    os.kill(pid, signal.SIGCONT)

    # What is seen.

    def jobs(self) -> list[dict[str, Any]]:
        """What `ps --all --json` says; the daemon is started if there is none."""
        self.start_daemon()
        told = self.command.run("ps", "--all", "--json")
        assert told.returncode == 0, told.stdout + told.stderr
        return list(json.loads(told.stdout)["jobs"])

    def start_daemon(self) -> None:
        """Start the daemon unless there is one."""
        if self.daemon_pid() is None:
            told = self.command.run("daemon", "start")
            assert told.returncode == 0, told.stdout + told.stderr

    def daemon_pid(self) -> int | None:
        """The pid of the daemon that runs, or None."""
        return daemon_pid(self.command.state) or None

    def look(self) -> None:
        """No device may be promised twice to processes that live at the same moment."""
        seen = [one for pid in self.command.running() if (one := _process(pid))]
        for device, held in shares(seen).items():
            alive = {name: share for name, (share, pid) in held.items() if Path(f"/proc/{pid}").exists()}
            assert sum(alive.values()) <= PLANNABLE_MIB, f"{device} is over-committed: {alive}"

    def finish(self) -> None:
        """Let everything end, then compare the daemon's word with the ledger, and look for what is left."""
        self.start_daemon()
        held = [job["id"] for job in self.jobs() if job["held"]]
        if held:
            self.command.run("release", *held)
        deadline = time.monotonic() + PATIENCE_S
        while any(job["state"] not in ENDED for job in self.jobs()):
            assert time.monotonic() < deadline, (
                f"these do not end: {[j for j in self.jobs() if j['state'] not in ENDED]}"
            )
            self.look()
        told = {job["id"]: job for job in self.jobs()}
        named = {job["name"]: job for job in told.values()}
        for process, name, end in self.front:
            self._check_front(process, named.get(name), end)
        missing = set(self.expected) - set(told)
        assert not missing, f"these jobs are lost: {missing}"
        for job, (kind, number) in self.expected.items():
            if job not in self.disturbed:
                self._check_end(told[job], kind, number)
        self._check_starts(told)
        self.command.run("daemon", "stop")
        deadline = time.monotonic() + PATIENCE_S
        while self.command.running():
            assert time.monotonic() < deadline, f"left behind: {[_process(pid) for pid in self.command.running()]}"
            time.sleep(0.05)

    def _check_front(self, process: "subprocess.Popen[str]", job: dict[str, Any] | None, end: str) -> None:
        """A command in the foreground ends as it would alone, unless something was done to it or to its job."""
        output, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode == -signal.SIGKILL:
            assert job is None or job["state"] in ENDED, job
            return
        assert job is not None, f"its job is lost: {output}"
        if job["id"] not in self.disturbed:
            assert process.returncode == (ENDS[end][1] or 0), (process.returncode, output, job)
            self._check_end(job, *ENDS[end])

    def _check_end(self, job: dict[str, Any], kind: str, number: int | None) -> None:
        for replica in job["replicas"]:
            told = (replica["exit"]["kind"], replica["exit"]["code"] or replica["exit"]["signal"])
            assert told == (kind, number), job
        assert job["state"] == ("succeeded" if kind == "completed" else "failed"), job

    def _check_starts(self, told: dict[str, dict[str, Any]]) -> None:
        """Every start is in the ledger once: an attempt of a replica that is there twice was run twice."""
        starts = Counter(tuple(line.split()[1:4]) for line in self.ledger.read_text().splitlines() if line[0] == "s")
        for (job, replica, attempt), times in starts.items():
            most = 1 + (told[job]["attempt"] if job in self.requeued else 0)
            assert times <= most, f"{job} {replica}, attempt {attempt}, was started {times} times"
        started = {job for job, _, _ in starts}
        for job, status in told.items():
            if status["state"] == "succeeded":
                assert job in started, f"{job} is said to have succeeded and was never started"

    def _script(self, end: str) -> str:
        self._tag += 1
        seconds = self.random.choice((0, 0, 0.05, 0.2, 0.5, 1.5))
        tell = f'"$GPUSCHED_JOB $GPUSCHED_REPLICA $GPUSCHED_ATTEMPT {self._tag}" >> {self.ledger}'
        return f"echo s {tell}; sleep {seconds}; echo e {tell}; {end}"

    def _is_of(self, pid: int, job: str) -> bool:
        """Whether that pid is still a process of the job: numbers are given anew."""
        with contextlib.suppress(OSError):
            told = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
            return str(self.command.state).encode() in told and job.encode() in told
        return False


def _process(pid: int) -> Process | None:
    try:
        return read_process(pid)
    except OSError:
        return None


def _main() -> int:
    from tests.stand_in.library import StandIn

    parser = argparse.ArgumentParser(description="Random trouble for a real daemon.")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        (Path(folder) / "library").mkdir()
        host = StandIn(Path(folder) / "library").host(f"gpus {DEVICES}\nset * used 0\n")
        chaos = Chaos(Command(home, host.variables), options.seed)
        begun = time.monotonic()
        try:
            for number in range(options.rounds):
                chaos.round()
                if number % 50 == 49:
                    print(f"{number + 1} rounds, {time.monotonic() - begun:.0f} s, {dict(chaos.done)}", flush=True)
            chaos.finish()
        except (AssertionError, GpuschedError):
            print(f"seed {options.seed}, state kept in {folder}-kept", flush=True)
            subprocess.run(["cp", "-r", str(home), f"{folder}-kept"], check=False)
            for pid in chaos.command.running():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        print(
            f"{options.rounds} rounds, {len(chaos.expected)} jobs, {len(chaos.disturbed)} of them disturbed: all held"
        )
    return 0


if __name__ == "__main__":
    sys.exit(_main())
