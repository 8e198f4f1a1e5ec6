"""The whole workload as real processes over a real channel, with tiny settings."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workloads.snake.record import read_rows

ROOT = Path(__file__).parents[3]


class Launch:
    """Starts replicas as a supervisor does, and ends all of them with the test."""

    def __init__(self, run_dir: Path, **settings: object) -> None:
        self.run_dir = run_dir
        few = {"population": 16, "trials": 8} if settings.get("algo") == "genetic" else {"games": 16, "rollout": 8}
        self._settings = {"network": "small"} | few | settings
        self._processes: list[subprocess.Popen[bytes]] = []

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
        path = self.run_dir / "progress.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, what: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.log("learner.0")
            time.sleep(0.05)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    launches: list[Launch] = []

    def make(name: str = "r", **settings: object) -> Launch:
        (tmp_path / name).mkdir(mode=0o700)
        launches.append(Launch(tmp_path / name, **settings))
        return launches[-1]

    yield make
    for one in launches:
        one.end()


@pytest.mark.timeout(120)  # two starts of TensorFlow, perhaps on a busy machine
@pytest.mark.parametrize(
    "how", [{}, {"inference": "learner"}, {"algo": "qlearning", "steps": 11_000}, {"algo": "genetic"}]
)
def test_a_run_ends_by_its_limit_and_leaves_all_its_files(
    launch: Callable[..., Launch], how: dict[str, object]
) -> None:
    run = launch(**{"steps": 5_000} | how)
    learner, actor = run.start("learner.0"), run.start("actor.0")
    assert learner.wait(90) == 0, run.log("learner.0")
    assert actor.wait(20) == 0, run.log("actor.0")
    assert "greedy play: mean" in run.log("learner.0")
    evaluation = json.loads((run.run_dir / "evaluation.json").read_text())
    assert (evaluation["games"], evaluation["steps"] >= 5_000) == (256, True)
    for name in ("weights.npz", "scores.csv", "learning_curve.png", "game.gif", "progress.jsonl"):
        assert (run.run_dir / name).stat().st_size > 0
    assert list((run.run_dir / "tensorboard").iterdir())
    assert "greedy play: mean" in str(run.progress()[-1]["note"])


def curve_of(run: Launch, actors: int) -> list[tuple[int, int, float]]:
    """Return steps, games and score of some generations, of which the last ones are played without the second actor."""
    learner, *players = [run.start(name) for name in ("learner.0", *(f"actor.{rank}" for rank in range(actors)))]
    scores = run.run_dir / "scores.csv"
    for player in players[1:2]:
        run.wait_for(lambda: any("actor.1" in str(told.get("replicas")) for told in run.progress()))
        player.kill()
    before = len(read_rows(scores))
    run.wait_for(lambda: len(read_rows(scores)) >= before + 12)
    learner.send_signal(signal.SIGTERM)
    assert learner.wait(20) == 0, run.log("learner.0")
    return [row[1:4] for row in read_rows(scores)]


@pytest.mark.timeout(120)  # two learners and four actors, perhaps on a busy machine
def test_one_seed_gives_one_curve_with_one_actor_and_with_three_of_which_one_is_killed(
    launch: Callable[..., Launch],
) -> None:
    alone, together = curve_of(launch("1", algo="genetic"), 1), curve_of(launch("3", algo="genetic"), 3)
    whole = min(len(alone), len(together))
    assert alone[:whole] == together[:whole]
    assert len({score for _, _, score in alone[:whole]}) > 1


def test_actors_that_the_learner_thinks_for_are_light_and_one_of_them_is_watched(
    launch: Callable[..., Launch],
) -> None:
    run = launch(inference="learner")
    (run.run_dir / "watched").touch()
    learner, *actors = run.start("learner.0"), run.start("actor.0"), run.start("actor.1")
    run.wait_for(lambda: bool(run.progress()) and {"actor.0", "actor.1"} <= set(run.progress()[-1]["replicas"]))  # type: ignore[call-overload]
    run.wait_for((run.run_dir / "frame.txt").exists)
    for actor in actors:
        assert "tensorflow" not in Path(f"/proc/{actor.pid}/maps").read_text()
    actors[0].kill()
    actors[0].wait()
    run.start("actor.0", attempt=1)
    run.wait_for(lambda: float(run.progress()[-1]["replicas"]["actor.0"]["steps_per_s"]) > 0)  # type: ignore[index]
    learner.send_signal(signal.SIGTERM)
    assert learner.wait(20) == 0, run.log("learner.0")
    assert actors[1].wait(20) == 0, run.log("actor.1")


@pytest.mark.slow
@pytest.mark.timeout(240)  # five starts of TensorFlow, perhaps on a busy machine
@pytest.mark.parametrize("how", [{}, {"inference": "learner"}, {"algo": "qlearning"}, {"algo": "genetic"}])
def test_it_survives_kill_9_of_an_actor_and_of_the_learner(
    launch: Callable[..., Launch], how: dict[str, object]
) -> None:
    run = launch(**how)
    learner, first, second = run.start("learner.0"), run.start("actor.0"), run.start("actor.1")
    run.wait_for(lambda: bool(run.progress()) and {"actor.0", "actor.1"} <= set(run.progress()[-1]["replicas"]))  # type: ignore[call-overload]
    first.kill()
    first.wait()
    told = len(run.progress())
    run.wait_for(lambda: len(run.progress()) >= told + 2)
    assert run.progress()[-1]["steps_per_s"] > 0  # type: ignore[operator]
    learner.kill()
    learner.wait()
    steps = read_rows(run.run_dir / "scores.csv")[-1][1]
    learner = run.start("learner.0", attempt=1)
    run.wait_for(lambda: any(row[1] > steps for row in read_rows(run.run_dir / "scores.csv")), 120)  # plays all again
    assert "going on from" in run.log("learner.0")
    assert second.poll() is None, "the other actor never noticed"
    learner.send_signal(signal.SIGTERM)
    assert learner.wait(20) == 0, run.log("learner.0")
    assert second.wait(20) == 0
    assert (run.run_dir / "learning_curve.png").exists()
    assert (run.run_dir / "game.gif").exists()


def test_who_asks_for_the_end_does_not_wait_for_the_evaluation(launch: Callable[..., Launch]) -> None:
    run = launch(minutes=0.0001, network="original")  # its 256 greedy games take seconds
    learner = run.start("learner.0")
    run.wait_for(lambda: any("greedy games" in str(told.get("note")) for told in run.progress()))
    learner.send_signal(signal.SIGTERM)
    assert learner.wait(20) == -signal.SIGTERM
    assert not (run.run_dir / "evaluation.json").exists()
    assert (run.run_dir / "weights.npz").exists()


def test_weights_that_cannot_be_written_are_one_sentence(launch: Callable[..., Launch]) -> None:
    run = launch(minutes=0.0001)
    (run.run_dir / ".weights.npz").mkdir()
    assert run.start("learner.0").wait(60) == 1
    assert "not written: " in run.log("learner.0")
    assert "Traceback" not in run.log("learner.0")


@pytest.mark.parametrize("role", ["learner", "actor"])
def test_outside_a_launch_it_says_how_to_launch_it(role: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
    command = [sys.executable, "-m", f"workloads.snake.{role}"]
    result = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "gpusched launch" in result.stderr
    assert "Traceback" not in result.stderr
