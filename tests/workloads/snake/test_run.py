"""The whole workload as real processes over a real channel, with tiny settings."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cli.command import Command
from tests.workloads.launched import WHOLE_TEST_S, Launched, Launches, progress_in
from workloads.common.record import Row, read_rows
from workloads.snake.checkpoint import Counts, save
from workloads.snake.networks import build
from workloads.snake.settings import Settings

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(1200)  # more than WHOLE_TEST_S, in which all waits of one test end


def small(**how: object) -> Settings:
    few = {"population": 16, "trials": 8} if how.get("algo") == "genetic" else {"games": 16, "rollout": 8}
    return msgspec.convert({"network": "small"} | few | how, Settings)


class Replicas:
    """Starts replicas by themselves, and ends them with the test. Nobody forks them or starts them again.

    So it can be seen what each of them imports, and how it ends.
    """

    def __init__(self, run_dir: Path, **settings: object) -> None:
        self.run_dir = run_dir
        self._settings = msgspec.to_builtins(small(**settings))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._until = time.monotonic() + WHOLE_TEST_S

    def start(self, name: str, attempt: int = 0) -> subprocess.Popen[bytes]:
        role, rank = name.split(".")
        identity = {
            "GPUSCHED_JOB": "snake-1",
            "GPUSCHED_ROLE": role,
            "GPUSCHED_RANK": rank,
            "GPUSCHED_ROLE_COUNT": "2",
            "GPUSCHED_REPLICA": name,
            "GPUSCHED_ATTEMPT": str(attempt),
            "GPUSCHED_ENDPOINT": f"ipc://{self.run_dir}/channel.sock",
            "GPUSCHED_RUN_DIR": str(self.run_dir),
            "GPUSCHED_SETTINGS": json.dumps(self._settings),
            "OMP_NUM_THREADS": "1",
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_NUM_INTEROP_THREADS": "1",
        }
        with (self.run_dir / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"workloads.snake.{role}"],
                env=os.environ | identity,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.run_dir / f"{name}.log").read_text()

    def progress(self) -> list[dict[str, object]]:
        return progress_in(self.run_dir)

    def wait_for(self, what: Callable[[], bool]) -> None:
        while not what():
            assert time.monotonic() < self._until, self.log("learner.0")
            time.sleep(0.05)

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of a process, and return its code."""
        return process.wait(max(0.0, self._until - time.monotonic()))

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Callable[..., Replicas]]:
    made: list[Replicas] = []

    def make(**settings: object) -> Replicas:
        (tmp_path / "r").mkdir(mode=0o700)
        made.append(Replicas(tmp_path / "r", **settings))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"inference": "learner", "inputs": "frame"},  # those that see paths take long to be compiled
        {"algo": "qlearning", "steps": 11_000},
        {"algo": "genetic"},
    ],
)
def test_a_run_ends_by_its_limit_and_leaves_all_its_files(
    replicas: Callable[..., Replicas], how: dict[str, object]
) -> None:
    run = replicas(**{"steps": 5_000} | how)
    learner, actor = run.start("learner.0"), run.start("actor.0")
    assert run.end_of(learner) == 0, run.log("learner.0")
    assert run.end_of(actor) == 0, run.log("actor.0")
    assert "greedy play: mean" in run.log("learner.0")
    evaluation = json.loads((run.run_dir / "evaluation.json").read_text())
    assert (evaluation["games"], evaluation["steps"] >= 5_000) == (256, True)
    for name in ("weights.npz", "scores.csv", "learning_curve.png", "game.gif", "progress.jsonl"):
        assert (run.run_dir / name).stat().st_size > 0
    assert list((run.run_dir / "tensorboard").iterdir())
    assert "greedy play: mean" in str(run.progress()[-1]["note"])


def test_saved_weights_are_evaluated_without_an_actor_and_play_the_same_games(tmp_path: Path) -> None:
    saved = Counts(network="small", inputs="paths", steps=7)
    save(tmp_path / "some.npz", build("small", "paths"), saved)
    command, evaluations = Command(tmp_path), []
    for job in ("snake-1", "snake-2"):
        done = command.run("launch", "snake", "--machine=cpu", "--evaluate", "some.npz", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "greedy play: mean" in done.stdout
        assert f"{job}: evaluation.json, game.gif" in done.stdout
        assert [replica["name"] for replica in command.job(job)["replicas"]] == ["learner.0"]
        evaluations.append(json.loads((command.state / "jobs" / job / "evaluation.json").read_text()))
    assert (evaluations[0]["games"], evaluations[0]["steps"]) == (256, 7)
    assert evaluations[0] == evaluations[1]


def curve(run: Launched) -> list[Row]:
    return read_rows(run.folder / "scores.csv")


def outcome(run: Launched) -> list[tuple[int, int, float]]:
    """Steps, games and score of each generation."""
    return [row[1:4] for row in curve(run)]


def test_one_seed_gives_one_curve_whoever_is_killed_and_however_many_play(launches: Launches) -> None:
    """The one actor comes back with the scores of a generation that its new learner has not begun again."""
    settings = small(algo="genetic")
    together, alone = (launches.start("snake", actors, settings) for actors in (3, 1))
    alone.waits_until(lambda: len(curve(alone)) >= 3, "generations")
    alone.kill("learner.0")
    together.waits_until(lambda: "actor.1" in together.replicas_told(), "what the second actor played")
    together.kill("actor.1")
    before = len(curve(together))
    together.waits_until(lambda: len(curve(together)) >= before + 12, "12 more generations")
    together.stops_when_asked()
    found = outcome(together)
    alone.begins("learner.0", 1)
    assert "going on from" in alone.log("learner.0")
    alone.waits_until(lambda: len(curve(alone)) >= len(found), "as many generations")
    alone.stops_when_asked()
    assert outcome(alone)[: len(found)] == found
    assert len({score for _, _, score in found}) > 1


def test_actors_that_the_learner_thinks_for_are_light_and_one_of_them_is_watched(
    replicas: Callable[..., Replicas],
) -> None:
    run = replicas(inference="learner", inputs="frame")
    learner, *actors = run.start("learner.0"), run.start("actor.0"), run.start("actor.1")
    run.wait_for(lambda: bool(run.progress()) and {"actor.0", "actor.1"} <= set(run.progress()[-1]["replicas"]))  # type: ignore[call-overload]

    def shown() -> bool:
        (run.run_dir / "watched").touch()  # as a person's view does: it counts for a minute
        return (run.run_dir / "frame.txt").exists()

    run.wait_for(shown)
    for actor in actors:
        assert "tensorflow" not in Path(f"/proc/{actor.pid}/maps").read_text()
    actors[0].kill()
    actors[0].wait()
    run.start("actor.0", attempt=1)
    run.wait_for(lambda: float(run.progress()[-1]["replicas"]["actor.0"]["steps_per_s"]) > 0)  # type: ignore[index]
    learner.send_signal(signal.SIGTERM)
    assert run.end_of(learner) == 0, run.log("learner.0")
    assert run.end_of(actors[1]) == 0, run.log("actor.1")


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"inference": "learner"}, {"algo": "qlearning"}])
def test_it_survives_kill_9_of_an_actor_and_of_the_learner(launches: Launches, how: dict[str, object]) -> None:
    run = launches.start("snake", 2, small(inputs="frame", **how))  # both begin twice: these are compiled soon
    run.waits_until(lambda: run.replicas_told() == {"actor.0", "actor.1"}, "both actors")
    run.kill("actor.0")
    told = len(run.progress())
    run.waits_until(lambda: len(run.progress()) >= told + 2, "further progress")
    run.waits_until(lambda: run.progress()[-1]["steps_per_s"] > 0, "steps")
    run.waits_until(lambda: bool(curve(run)), "a first line of scores.csv")
    run.kill("learner.0")
    steps = max([0, *(row[1] for row in curve(run))])
    run.begins("learner.0", 1)
    assert "going on from" in run.log("learner.0")
    run.waits_until(lambda: any(row[1] > steps for row in curve(run)), "further lines of scores.csv")
    assert [run.replica(name)["restarts"] for name in ("learner.0", "actor.0", "actor.1")] == [1, 1, 0], run.log(
        "learner.0"
    )
    run.stops_when_asked()
    assert (run.folder / "learning_curve.png").exists()
    assert (run.folder / "game.gif").exists()


def test_who_asks_for_the_end_does_not_wait_for_the_evaluation(replicas: Callable[..., Replicas]) -> None:
    run = replicas(minutes=0.0001, network="original")  # its 256 greedy games take seconds
    learner = run.start("learner.0")
    run.wait_for(lambda: any("greedy games" in str(told.get("note")) for told in run.progress()))
    learner.send_signal(signal.SIGTERM)
    assert run.end_of(learner) == -signal.SIGTERM
    assert not (run.run_dir / "evaluation.json").exists()
    assert (run.run_dir / "weights.npz").exists()


def test_weights_that_cannot_be_written_are_one_sentence(replicas: Callable[..., Replicas]) -> None:
    run = replicas(minutes=0.0001)
    (run.run_dir / ".weights.npz").mkdir()
    assert run.end_of(run.start("learner.0")) == 1
    assert "not read or written: " in run.log("learner.0")
    assert "Traceback" not in run.log("learner.0")
