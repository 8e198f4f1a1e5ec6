"""The ordinary life of a soak: people who queue, launch, pipe, hold, stop, and ask what is going on."""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.cli.command import TOYS
from tests.cli.two_hosts import SETTINGS, WORKLOAD
from tests.ports import free_port
from tests.soak import argv
from tests.soak.commands import Result
from tests.soak.jobs import SCRIPTS, Job, as_shell, wrapped
from tests.soak.stage import Stage

__all__ = ["Life"]

NEEDS: Final = ("none", "none", "none", "memory 2GiB", "fraction 0.4", "fraction 0.5", "whole 1", "whole 2")
KINDS: Final = {
    "quick": 8, "nap": 8, "crashes": 4, "killed": 2, "forks twice": 4, "clean environment": 2, "crowd": 2,
    "changing pids": 1, "deaf": 2, "stays": 4, "loud": 2, "odd files": 2, "stands in the way": 1,
    "replaces its status": 1,
}  # fmt: skip
HARM_THEMSELVES: Final = ("replaces its status", "stands in the way")
SMALL: Final = 5_000_000


class Life:
    """Each method is one thing that somebody does; `actions` are all of them with their weights."""

    def __init__(self, stage: Stage, avoid: frozenset[str]) -> None:
        self.stage, self.random, self.avoid = stage, stage.random, avoid
        if not stage.alone:
            self.avoid = avoid | {"clean environment"}  # which could not be found again at the end
        self._steady: list[Job] = []
        self._ending = False
        self._data = stage.host.work / "data"
        self._data.write_bytes(os.urandom(SMALL))
        self._sum = hashlib.sha256(self._data.read_bytes()).hexdigest()
        folder = stage.host.work / "workloads" / "toy"
        folder.mkdir(parents=True)
        (folder / "workload.toml").write_text(WORKLOAD)
        (folder / "options.py").write_text(SETTINGS)
        shutil.copy(TOYS / "feeding.py", folder)

    def actions(self) -> dict[str, tuple[float, Callable[[], object]]]:
        return {
            "run -d": (30, self.submit),
            "run -d, held and released": (4, self.hold),
            "run -d --at": (3, self.at),
            "run -d --after": (5, self.after),
            "run, attached": (10, self.attached),
            "run in a pipeline": (6, self.pipeline),
            "launch, attached": (4, self.launch),
            "launch -d": (4, self.launch_detached),
            "launch and join": (1.5, self.join),
            "launch averaging": (0.25, self.averaging),
            "launch snake": (0.12, self.snake),
            "100 MB in, 2 GB out": (0.05, self.much),
            "stop": (6, self.stop),
            "ask": (22, self.ask),
        }

    # ---- submissions ----

    def keep_steady(self) -> None:
        """Two jobs run all the while, so that what their supervisors take can be followed; none is harmed."""
        if self._ending:
            return
        self._steady = [job for job in self._steady if not job.checked]
        for number in range(2 - len(self._steady)):
            job = self.stage.jobs.new("steady", ends=None, detached=True, steady=True)
            words = argv.run(
                ("none", "memory 1GiB")[number], wrapped(job.token, "sleep infinity"), name=job.token, detach=True
            )
            self.stage.commands.start(words, "run -d", partial(self._acknowledged, job))
            self._steady.append(job)

    def steady_ids(self) -> set[str]:
        return {job.id for job in self._steady if job.id and not job.checked}

    def end_steady(self) -> None:
        self._ending = True
        for job in self._steady:
            job.steady = False
            job.expected = ("cancelled",)
            if job.id and not job.checked:
                self.stage.gpusched("stop", job.id, allowed=(0, 4))

    def submit(self) -> Job:
        return self._submit(self._kind(), self.random.choice(NEEDS), {})

    def hold(self) -> None:
        job = self._submit("nap", self.random.choice(NEEDS), {"hold": True})
        self.stage.later(self.random.uniform(2, 8), lambda: self._release(job))

    def at(self) -> None:
        self._submit("quick", "none", {"at": "+3s"})

    def after(self) -> None:
        """A chain of two: the second starts if the first succeeds, else it is cancelled."""
        first = self._submit(self.random.choice(("nap", "crashes")), "none", {})

        def second(job_id: str) -> None:
            kind = "quick" if first.kind == "nap" else "never"
            job = self._submit(kind, "none", {"after": job_id})
            job.waits_for = first.token
            job.expected = ("succeeded",) if kind == "quick" else ("cancelled",)

        self._once_known(first, second)

    def _submit(self, kind: str, need: str, options: dict[str, str | bool]) -> Job:
        script, ends = SCRIPTS.get(kind, SCRIPTS["quick"])
        job = self.stage.jobs.new(kind, ends=ends, detached=True)
        if kind in HARM_THEMSELVES:
            job.excused.add("harms itself")
        options = {"priority": str(self.random.randrange(3)), **options}
        if ends is None:
            options["time-limit"] = f"{self.random.randint(3, 12)}s"
            job.expected = ("failed",)
        if self.random.random() < 0.3:
            options["grace"] = self.random.choice(("1s", "3s"))
        if self.random.random() < 0.15:
            options["requeue"] = job.requeue = True
        if need != "none" and self.random.random() < 0.1:
            options["machine"] = "2x16GiB"
        script = script.replace("{seconds}", f"{self.random.uniform(0.5, 8):.1f}").replace("{{", "{")
        words = argv.run(need, wrapped(job.token, script), name=job.token, detach=True, options=options)
        self.stage.commands.start(words, "run -d", lambda result: self._acknowledged(job, result))
        return job

    def _acknowledged(self, job: Job, result: Result) -> None:
        self.stage.expect(result, (0,))
        if result.code == 0:
            try:
                job_id = json.loads(result.output)["id"]
            except (ValueError, KeyError):
                self.stage.journal.violation("an acknowledgement names its job", str(result))
                return
            job.acknowledged = True
            self.stage.jobs.name_id(job, job_id)

    def _once_known(self, job: Job, action: Callable[[str], None], tries: int = 400) -> None:
        if job.id is not None:
            action(job.id)
        elif tries:
            self.stage.later(0.3, lambda: self._once_known(job, action, tries - 1))

    def _release(self, job: Job) -> None:
        self._once_known(job, lambda job_id: self.stage.gpusched("release", job_id, allowed=(0, 2, 4)))

    # ---- attached ----

    def attached(self) -> None:
        """A command in the foreground; its exit code is that of its command."""
        kind = self.random.choice(("quick", "nap", "crashes", "killed", "forks twice"))
        script, ends = SCRIPTS[kind]
        assert ends is not None
        job = self.stage.jobs.new(kind, ends=ends, detached=False)
        script = script.replace("{seconds}", f"{self.random.uniform(0.5, 4):.1f}")
        words = argv.run(self.random.choice(NEEDS), wrapped(job.token, script), name=job.token, detach=False)
        code = 128 + ends[1] if ends[0] == "signalled" else ends[1]
        process = self.stage.commands.start(
            words, "run", lambda result: self._ended_in_front(job, result, code), bound_s=600
        )
        if self.random.random() < 0.12:
            job.excused.add("its client was killed")
            self.stage.journal.done["harm: client killed"] += 1
            self.stage.later(self.random.uniform(0.05, 3), process.kill)

    def _ended_in_front(self, job: Job, result: Result, code: int, output: str | None = None) -> None:
        self.stage.journal.checks["exit codes match"] += 1
        if result.code == -9 and "its client was killed" in job.excused:
            return
        harmed = job.excused or self.stage.journal.during(
            result.begun, result.ended, "reboot", "full disk", "full inodes"
        )
        gone = result.code in (4, 5) and self.stage.journal.during(result.begun, result.ended)
        if result.code != code and not harmed and not gone:
            self.stage.journal.violation("exit codes match", f"{job.token}: expected {code}; {result}")
        if output is not None and result.code == 0 and result.output.split()[:1] != [output]:
            self.stage.journal.violation("bytes go through unchanged", f"{job.token}: expected {output}; {result}")

    def pipeline(self) -> None:
        """cat FILE | gpusched run -- cat | sha256sum, in a script that heeds every exit code."""
        self._pipeline(f"cat {self._data}", "cat", self._sum)

    def much(self) -> None:
        zeros = hashlib.sha256()
        for _ in range(100):
            zeros.update(bytes(1 << 20))
        self._pipeline("head -c 104857600 /dev/zero", "cat", zeros.hexdigest())
        for _ in range(1948):
            zeros.update(bytes(1 << 20))
        self._pipeline("true", "head -c 2147483648 /dev/zero", zeros.hexdigest())

    def _pipeline(self, source: str, script: str, expected: str) -> None:
        job = self.stage.jobs.new("pipeline", ends=("completed", 0), detached=False)
        words = shlex.join(argv.run("none", wrapped(job.token, script), name=job.token, detach=False))
        script = f"set -o pipefail; {source} | {words} | sha256sum"
        self.stage.commands.start(
            ["bash", "-c", script],
            "pipeline",
            lambda result: self._ended_in_front(job, result, 0, expected),
            bound_s=600,
        )

    # ---- launches ----

    def launch(self) -> None:
        """A workload in the foreground starts at once or ends with 3."""
        job, path = self._toy()
        machine: dict[str, str | bool] = {"machine": "1x16GiB"} if self.random.random() < 0.2 else {}
        words = argv.launch(str(path), name=job.token, detach=False, options=machine)
        self.stage.commands.start(words, "launch", lambda result: self._launched(job, result), bound_s=600)

    def _launched(self, job: Job, result: Result) -> None:
        harmed = job.excused or self.stage.journal.during(result.begun, result.ended)
        if result.code not in (0, 3) and not harmed:
            self.stage.journal.violation("a launch ends with 0, or with 3 if it does not fit", str(result))

    def launch_detached(self) -> None:
        job, path = self._toy()
        job.detached = True
        words = argv.launch(str(path), name=job.token, detach=True)
        self.stage.commands.start(words, "launch -d", lambda result: self._acknowledged(job, result))

    def _toy(self) -> tuple[Job, "os.PathLike[str]"]:
        replicas = self.random.randint(1, 4)
        job = self.stage.jobs.new("toy", ends=("completed", 0), detached=False, replicas=replicas, restarts=True)
        script = as_shell(job.token, f"sleep {self.random.uniform(0.5, 6):.1f}")
        return job, self.stage.host.toy(job.token, replicas, script)

    def averaging(self) -> None:
        self._real("averaging", {"procs": "2", "rounds": "20"})

    def snake(self) -> None:
        self._real("snake", {"procs": "2", "network": "small", "games": "8", "steps": "4000"})

    def _real(self, workload: str, options: dict[str, str | bool]) -> None:
        job = self.stage.jobs.new(workload, ends=None, detached=False, expected=("succeeded",), restarts=True)
        words = argv.launch(workload, name=job.token, detach=False, options={"machine": "1x16GiB", **options})
        self.stage.commands.start(words, f"launch {workload}", lambda result: self._launched(job, result), bound_s=900)

    def join(self) -> None:
        """A learner that listens on the loopback with keys, and actors that join it through the queue."""
        job = self.stage.jobs.new("listens", ends=None, detached=True, expected=("succeeded",), restarts=True)
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        options: dict[str, str | bool] = {"listen": endpoint, "procs": "1"}
        toy = str(self.stage.host.work / "workloads" / "toy" / "workload.toml")
        words = argv.launch(toy, name=job.token, detach=True, options=options)
        env = {"PYTHONPATH": str(self.stage.host.work)}
        self.stage.commands.start(words, "launch --listen", lambda result: self._acknowledged(job, result), env=env)
        self._once_known(job, lambda job_id: self._join_it(job, job_id, endpoint))

    def _join_it(self, learner: Job, job_id: str, endpoint: str, tries: int = 60) -> None:
        folder = self.stage.host.state / "jobs" / job_id
        if not (folder / "fed.json").exists():
            if tries and learner.state not in ("failed", "cancelled", "lost"):
                self.stage.later(0.5, lambda: self._join_it(learner, job_id, endpoint, tries - 1))
            elif not learner.checked:
                learner.excused.add("its learner was not fed in time")
                self._end_learner(job_id)
            return
        actors = self.stage.jobs.new("joins", ends=None, detached=True, expected=("succeeded",), restarts=True)
        actors.waits_for = learner.token
        words = [*argv.GPUSCHED, "join", endpoint, "--key", str(folder / "keys" / "join.key"), "--procs", "1"]
        words += ["--workload", str(self.stage.host.work / "workloads" / "toy" / "workload.toml")]
        words += ["--patience", "30s", "--name", actors.token, "-d", "--json"]
        env = {"PYTHONPATH": str(self.stage.host.work)}
        self.stage.commands.start(words, "join -d", lambda result: self._joined(learner, actors, result), env=env)
        self.stage.later(20, lambda: self._end_learner(job_id))

    def _joined(self, learner: Job, actors: Job, result: Result) -> None:
        if learner.excused or self.stage.journal.during(result.begun, result.ended):
            actors.excused.add("its learner was disturbed")
        if result.code == 0:
            self._acknowledged(actors, result)
        elif not actors.excused:
            self.stage.expect(result, (0,))

    def _end_learner(self, job_id: str) -> None:
        folder = self.stage.host.state / "jobs" / job_id
        if folder.is_dir():
            try:
                (folder / "end").touch()
            except OSError:  # the disk is full
                self.stage.later(5, lambda: self._end_learner(job_id))

    # ---- the rest ----

    def stop(self) -> None:
        live = self.stage.jobs.live()
        if live:
            job = self.random.choice(live)
            job.excused.add("stopped")
            words = self.random.choice(((), ("--kill",), ("--no-wait",)))
            self.stage.gpusched("stop", *words, str(job.id), allowed=(0, 4))

    def ask(self) -> None:
        some = self.random.choice(list(self.stage.jobs.by_id) or ["run-1"])
        questions: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
            (("ps",), (0,)), (("ps", "--why"), (0,)), (("status",), (0,)), (("status", "--json"), (0,)),
            (("logs", some, "-n", "5"), (0, 4)), (("wait", some, "--timeout", "2s"), (0, 1, 4)),
            (("plan", "--procs", "4", "--json"), (0, 3)), (("doctor",), (0, 1, 2, 3, 4, 5)),
            (("daemon", "status"), (0,)),
        )  # fmt: skip
        words, allowed = self.random.choice(questions)
        self.stage.gpusched(*words, allowed=allowed)

    def _kind(self) -> str:
        kinds = {kind: weight for kind, weight in KINDS.items() if kind not in self.avoid}
        return self.random.choices(list(kinds), list(kinds.values()))[0]
