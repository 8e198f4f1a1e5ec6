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
PATIENCE_S = 270

pytestmark = pytest.mark.timeout(
    300
)  # up to five starts of TensorFlow, perhaps on a busy machine: more than PATIENCE_S


class Launch:
    """Starts replicas as a supervisor does, and ends all of them with the test. Nothing is waited for after `until`."""

    def __init__(self, run_dir: Path, until: float, **settings: object) -> None:
        self.run_dir = run_dir
        few = {"population": 16, "trials": 8} if settings.get("algo") == "genetic" else {"games": 16, "rollout": 8}
        self._settings = {"network": "small"} | few | settings
        self._processes: list[subprocess.Popen[bytes]] = []
        self._until = until

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

    def wait_for(self, what: Callable[[], bool]) -> None:
        while not what():
            assert time.monotonic() < self._until, self.log("learner.0")
            time.sleep(0.05)

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of a process, and return its code."""
        return process.wait(max(0.0, self._until - time.monotonic()))

    def steps_told(self) -> int:
        """The steps in the last line of the curve, 0 before there is one."""
        return max([0, *(row[1] for row in read_rows(self.run_dir / "scores.csv"))])

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    launches: list[Launch] = []
    until = time.monotonic() + PATIENCE_S

    def make(name: str = "r", **settings: object) -> Launch:
        (tmp_path / name).mkdir(mode=0o700)
        launches.append(Launch(tmp_path / name, until, **settings))
        return launches[-1]

    yield make
    for one in launches:
        one.end()


@pytest.mark.parametrize(
    "how", [{}, {"inference": "learner"}, {"algo": "qlearning", "steps": 11_000}, {"algo": "genetic"}]
)
def test_a_run_ends_by_its_limit_and_leaves_all_its_files(
    launch: Callable[..., Launch], how: dict[str, object]
) -> None:
    run = launch(**{"steps": 5_000} | how)
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


Curve = list[tuple[int, int, float]]
"""Steps, games and score of some generations."""


def rows_of(run: Launch) -> Curve:
    return [row[1:4] for row in read_rows(run.run_dir / "scores.csv")]


def further(run: Launch, learner: subprocess.Popen[bytes], generations: int) -> Curve:
    """Return the curve so many generations later, and end the run."""
    before = len(rows_of(run))
    run.wait_for(lambda: len(rows_of(run)) >= before + generations)
    learner.send_signal(signal.SIGTERM)
    assert run.end_of(learner) == 0, run.log("learner.0")
    return rows_of(run)


def with_one_actor_and_a_learner_that_is_killed(run: Launch) -> Curve:
    """The actor comes back with the scores of a generation that the learner has not begun again."""
    learner, _ = run.start("learner.0"), run.start("actor.0")
    run.wait_for(lambda: len(rows_of(run)) >= 3)
    learner.kill()
    learner.wait()
    learner = run.start("learner.0", attempt=1)
    run.wait_for(lambda: "going on from" in run.log("learner.0"))
    return further(run, learner, 12)


def with_three_actors_of_which_one_is_killed(run: Launch) -> Curve:
    learner, _, second, _ = [run.start(name) for name in ("learner.0", "actor.0", "actor.1", "actor.2")]
    run.wait_for(lambda: any("actor.1" in str(told.get("replicas")) for told in run.progress()))
    second.kill()
    return further(run, learner, 12)


def test_one_seed_gives_one_curve_whoever_is_killed_and_however_many_play(launch: Callable[..., Launch]) -> None:
    alone = with_one_actor_and_a_learner_that_is_killed(launch("1", algo="genetic"))
    together = with_three_actors_of_which_one_is_killed(launch("3", algo="genetic"))
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
    assert run.end_of(learner) == 0, run.log("learner.0")
    assert run.end_of(actors[1]) == 0, run.log("actor.1")


@pytest.mark.slow
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
    run.wait_for(lambda: run.progress()[-1]["steps_per_s"] > 0)  # type: ignore[operator]
    run.wait_for(lambda: run.steps_told() > 0)
    learner.kill()
    learner.wait()
    steps = run.steps_told()
    learner = run.start("learner.0", attempt=1)
    run.wait_for(lambda: run.steps_told() > steps)  # perhaps it plays all again that was not saved
    assert "going on from" in run.log("learner.0")
    assert second.poll() is None, "the other actor never noticed"
    learner.send_signal(signal.SIGTERM)
    assert run.end_of(learner) == 0, run.log("learner.0")
    assert run.end_of(second) == 0
    assert (run.run_dir / "learning_curve.png").exists()
    assert (run.run_dir / "game.gif").exists()


def test_who_asks_for_the_end_does_not_wait_for_the_evaluation(launch: Callable[..., Launch]) -> None:
    run = launch(minutes=0.0001, network="original")  # its 256 greedy games take seconds
    learner = run.start("learner.0")
    run.wait_for(lambda: any("greedy games" in str(told.get("note")) for told in run.progress()))
    learner.send_signal(signal.SIGTERM)
    assert run.end_of(learner) == -signal.SIGTERM
    assert not (run.run_dir / "evaluation.json").exists()
    assert (run.run_dir / "weights.npz").exists()


def test_weights_that_cannot_be_written_are_one_sentence(launch: Callable[..., Launch]) -> None:
    run = launch(minutes=0.0001)
    (run.run_dir / ".weights.npz").mkdir()
    assert run.end_of(run.start("learner.0")) == 1
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
