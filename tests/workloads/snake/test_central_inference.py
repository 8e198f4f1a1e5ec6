"""The learner that thinks for all actors and the actors that ask it, over a real channel; the network is arithmetic."""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusched.channel import Actor, ChannelError, Learner, LearnerGone
from tests.patience import PATIENCE_S, until
from workloads.snake.algorithm import Played
from workloads.snake.central_inference import Ask, Central, Judgement, Trajectory, ask_from
from workloads.snake.player import play_as_told
from workloads.snake.rollout import Floats, Rollout, empty_rollout
from workloads.snake.rules import CELLS, HEAD, MOVES, SIDE, START, Frames, Hunger
from workloads.snake.symmetry import Observations
from workloads.snake.vector import VectorSnake

ROOT = Path(__file__).parents[3]
STEPS = 8
OBSERVED = CELLS + 1


def judge(frames: Frames, hunger: Hunger) -> tuple[Floats, Floats, Observations]:
    """Any policy will do, as long as it can be seen in the values which frames were judged, and how hungry.

    What it observes is the frame, and then the hunger.
    """
    total = frames.reshape(len(frames), -1).sum(axis=1, dtype=np.float32) + hunger / np.float32(128)
    observations = np.concatenate([frames.reshape(len(frames), -1), hunger[:, None]], axis=1)
    return np.tile(np.array([1, 2, 3, 4], np.float32), (len(frames), 1)), total, observations


def frames_of(rollout: Rollout) -> Frames:
    """[steps, games, 10, 10]."""
    return rollout.observations[..., :CELLS].reshape(*rollout.actions.shape, SIDE, SIDE)


def hunger_of(rollout: Rollout) -> Hunger:
    """[steps, games]."""
    return rollout.observations[..., CELLS]


def require_one_story(rollout: Rollout) -> None:
    """Each head is where the action before has moved it to, or at a start when the game had ended."""
    heads = (rollout.observations[..., :CELLS] == HEAD).argmax(axis=2)
    down, right = np.array(MOVES).T
    moved = heads[:-1] + down[rollout.actions[:-1]] * SIDE + right[rollout.actions[:-1]]
    assert (heads[1:] == np.where(rollout.ended[:-1], START[0][0] * SIDE + START[0][1], moved)).all()
    assert (
        rollout.values[:-1]
        == judge(frames_of(rollout).reshape(-1, SIDE, SIDE), hunger_of(rollout).ravel())[1].reshape(heads.shape)
    ).all()
    assert (rollout.log_probabilities < 0).all()
    assert rollout.scores.size == rollout.ended.sum()


class Players:
    """Actors in threads of this process, each of which ends as a process would."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.ends: dict[str, object] = {}
        self._threads: list[threading.Thread] = []

    def start(self, name: str, games: int, seed: int = 0) -> None:
        def play() -> None:
            try:
                with Actor(self.endpoint, name=name) as channel:
                    play_as_told(channel, games, np.random.default_rng(seed), None)
            except ChannelError as error:
                self.ends[name] = error

        self._threads.append(threading.Thread(target=play, daemon=True))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def endpoint() -> Iterator[str]:
    path = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    yield f"ipc://{path}/job.sock"
    shutil.rmtree(path)


@pytest.fixture
def players(endpoint: str) -> Players:
    return Players(endpoint)


def central(learner: Learner) -> Central:
    return Central(learner, judge, STEPS, np.random.default_rng(1))


def gather(source: Central, enough: Callable[[list[Played]], bool]) -> list[Played]:
    found: list[Played] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, f"{len(found)} rollouts"
        played = source.next(0.1)
        if played is not None:
            found.append(played)
    return found


def test_the_rollouts_are_the_games_as_they_were_played(endpoint: str, players: Players) -> None:
    with Learner(endpoint) as learner:
        players.start("actor.0", 5, seed=7)
        found = gather(central(learner), lambda found: len(found) >= 8)
    players.join()
    assert isinstance(players.ends["actor.0"], LearnerGone)
    random = np.random.default_rng(7)
    games = {size: VectorSnake(size, int(random.integers(2**32))) for size in (3, 2)}
    for actor, rollout in found:
        require_one_story(rollout)
        again = games[rollout.actions.shape[1]]
        scores = []
        for frames, hunger, actions, rewards, ended in zip(
            frames_of(rollout), hunger_of(rollout), rollout.actions, rollout.rewards, rollout.ended, strict=True
        ):
            assert (frames == again.frames).all()
            assert (hunger == again.hunger).all()
            _, rewarded, over, finished = again.step(actions)
            assert (rewards == rewarded).all()
            assert (ended == over).all()
            scores.append(finished)
        assert (rollout.values[-1] == judge(again.frames, again.hunger)[1]).all()
        assert rollout.scores.tolist() == np.concatenate(scores).tolist()
        assert actor == "actor.0"


def test_an_actor_imports_no_framework(endpoint: str) -> None:
    program = (
        "import sys, numpy\n"
        "import workloads.snake.actor\n"
        "from gpusched.channel import Actor, LearnerGone\n"
        "from workloads.snake.player import play_as_told\n"
        "try:\n"
        f"    with Actor({endpoint!r}, name='actor.0') as channel:\n"
        "        play_as_told(channel, 4, numpy.random.default_rng(0), None)\n"
        "except LearnerGone:\n"
        "    pass\n"
        "print(sorted({'keras', 'tensorflow', 'torch', 'jax'} & sys.modules.keys()))\n"
    )
    with Learner(endpoint) as learner:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        gather(central(learner), lambda found: len(found) >= 2 * 20 // STEPS)
    assert (child.communicate()[0], child.returncode) == ("[]\n", 0)


def test_an_actor_that_was_killed_and_comes_back_loses_what_was_no_whole_rollout(endpoint: str) -> None:
    program = (
        "import sys, numpy\n"
        "from gpusched.channel import Actor\n"
        "from workloads.snake.player import play_as_told\n"
        f"with Actor({endpoint!r}, name='actor.0') as channel:\n"
        "    play_as_told(channel, 4, numpy.random.default_rng(int(sys.argv[1])), None)\n"
    )
    with Learner(endpoint) as learner:
        source = central(learner)
        for seed in range(3):
            child = subprocess.Popen([sys.executable, "-c", program, str(seed)], cwd=ROOT)
            try:
                found = gather(source, lambda found: len(found) >= 5)
                for _ in range(STEPS // 2):
                    source.next(0.05)
            finally:
                child.kill()
                child.wait()
            for _, rollout in found:
                require_one_story(rollout)


def test_actors_outlive_a_learner_and_ask_the_next_one(endpoint: str, players: Players) -> None:
    players.start("actor.0", 4)
    players.start("actor.1", 1)
    for over in (False, True):
        learner = Learner(endpoint)
        found = gather(central(learner), lambda found: {"actor.0", "actor.1"} <= {actor for actor, _ in found})
        learner.close(over=over)
    players.join()
    assert all(isinstance(end, LearnerGone) for end in players.ends.values())
    for _, rollout in found:
        require_one_story(rollout)


def test_nobody_waits_for_an_actor_that_asks_no_more(endpoint: str, players: Players) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.9") as slow:
        slow.ask(question(3), meta={"half": 0, "step": 0})
        source = central(learner)
        players.start("actor.0", 4)
        found = gather(source, lambda found: len(found) >= 2 * 100 // STEPS)
    players.join()
    assert isinstance(players.ends["actor.0"], LearnerGone)
    assert {actor for actor, _ in found} == {"actor.0"}


def question(games: int, **other: NDArray[Any]) -> dict[str, NDArray[Any]]:
    asked: dict[str, NDArray[Any]] = {
        "frames": VectorSnake(games, 0).frames,
        "hunger": np.zeros(games, np.uint8),
        "rewards": np.zeros(games, np.float32),
        "ended": np.zeros(games, np.bool_),
        "scores": np.empty(0, np.int64),
    }
    return asked | other


MALFORMED: dict[str, tuple[dict[str, NDArray[Any]], dict[str, object]]] = {
    "no half": (question(2), {"step": 0}),
    "a third half": (question(2), {"half": 2, "step": 0}),
    "half of a half": (question(2), {"half": 0.5, "step": 0}),
    "a step before the first": (question(2), {"half": 0, "step": -1}),
    "no games": (question(0), {"half": 0, "step": 0}),
    "frames of floats": (question(2, frames=np.zeros((2, SIDE, SIDE), np.float32)), {"half": 0, "step": 0}),
    "frames of another size": (question(2, frames=np.zeros((2, 9, 9), np.uint8)), {"half": 0, "step": 0}),
    "a number as frames": (question(2, frames=np.zeros((), np.uint8)), {"half": 0, "step": 0}),
    "hunger of other games": (question(2, hunger=np.zeros(3, np.uint8)), {"half": 0, "step": 0}),
    "rewards of other games": (question(2, rewards=np.zeros(3, np.float32)), {"half": 0, "step": 0}),
    "something beside": (question(2, more=np.zeros(3)), {"half": 0, "step": 0}),
}


@pytest.mark.parametrize("arrays_and_meta", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_ask_is_none(arrays_and_meta: tuple[dict[str, NDArray[Any]], dict[str, object]]) -> None:
    with pytest.raises(ValueError, match=r"it numbers|an ask has|, not "):
        ask_from(*arrays_and_meta)


def comes(learner: Learner, number: int) -> None:
    """Wait until so much has come to the learner and was not taken."""
    until(lambda: sum(each.waiting for each in learner.actors) == number, f"{number} have come")


def test_a_malformed_ask_is_said_and_its_actor_does_not_wait_in_vain(
    endpoint: str, players: Players, capsys: pytest.CaptureFixture[str]
) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="odd") as odd:
        answer = odd.ask({"frames": np.zeros(3)}, meta={"half": 0, "step": 0})
        odd.send({"frames": np.zeros(3)})
        comes(learner, 2)
        players.start("actor.0", 4)
        gather(central(learner), lambda found: len(found) >= 2)
        assert answer is not None
        assert answer.wait(PATIENCE_S) == {}
    assert capsys.readouterr().err.count("an ask of odd is left out: ") == 2


def test_what_waits_for_no_answer_is_left_out_however_much_it_looks_like_an_ask(
    endpoint: str, players: Players, capsys: pytest.CaptureFixture[str]
) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="odd") as odd:
        odd.send(question(2), meta={"half": 0, "step": 0})
        comes(learner, 1)
        players.start("actor.0", 4)
        source = central(learner)
        gather(source, lambda found: len(found) >= 2)
    assert {actor for actor, _ in source._trajectories} == {"actor.0"}
    assert capsys.readouterr().err.count("an ask of odd is left out: it waits for no answer") == 1


def ask(step: int, reward: float = 0.0, ended: bool = False, games: int = 2) -> Ask:
    scores = np.full(games if ended else 0, 5, np.int64)
    frames = np.full((games, SIDE, SIDE), step, np.uint8)
    hunger = np.full(games, step, np.uint8)
    return Ask(0, step, frames, hunger, np.full(games, reward, np.float32), np.full(games, ended), scores)


def take(trajectory: Trajectory, asked: Ask) -> Rollout | None:
    games = len(asked.frames)
    values = np.full(games, asked.step, np.float32)
    observations = np.concatenate([asked.frames.reshape(games, -1), asked.hunger[:, None]], axis=1)
    return trajectory.take(asked, Judgement(observations, np.full(games, asked.step % 4, np.uint8), -values, values))


def test_what_a_step_gave_belongs_to_the_step_and_the_last_value_to_the_next() -> None:
    trajectory = Trajectory(3, 2, OBSERVED)
    assert take(trajectory, ask(40, reward=9)) is None, "what came before the first ask belongs to no step"
    assert take(trajectory, ask(41, reward=1)) is None
    assert take(trajectory, ask(42, reward=2, ended=True)) is None
    whole = take(trajectory, ask(43, reward=3))
    assert whole is not None
    assert frames_of(whole)[:, 0, 0, 0].tolist() == [40, 41, 42]
    assert hunger_of(whole)[:, 1].tolist() == [40, 41, 42]
    assert whole.rewards[:, 1].tolist() == [1, 2, 3]
    assert whole.ended[:, 0].tolist() == [False, True, False]
    assert whole.values[:, 0].tolist() == [40, 41, 42, 43]
    assert whole.scores.tolist() == [5, 5]
    for step in (44, 45):
        assert take(trajectory, ask(step, reward=step)) is None
    following = take(trajectory, ask(46, reward=46))
    assert following is not None
    assert (frames_of(following)[0, 0, 0, 0], following.scores.size) == (43, 0)
    assert frames_of(whole)[0, 0, 0, 0] == 40, "a whole rollout is not written to any more"


def test_a_step_that_is_asked_again_counts_once() -> None:
    trajectory = Trajectory(2, 2, OBSERVED)
    take(trajectory, ask(0))
    take(trajectory, ask(1, reward=1))
    assert trajectory.goes_on_with(ask(1))
    assert take(trajectory, ask(1, reward=1)) is None
    whole = take(trajectory, ask(2, reward=2))
    assert whole is not None
    assert whole.rewards[:, 0].tolist() == [1, 2]


def test_an_asks_memory_is_not_kept_for_its_scores() -> None:
    trajectory = Trajectory(2, 2, OBSERVED)
    take(trajectory, ask(0))
    ended = ask(1, ended=True)
    take(trajectory, ended)
    ended.scores[:] = 99  # memory that is given back is written to by its actor
    whole = take(trajectory, ask(2))
    assert whole is not None
    assert whole.scores.tolist() == [5, 5]


def test_other_games_under_the_same_name_do_not_go_on() -> None:
    trajectory = Trajectory(4, 2, OBSERVED)
    for step in range(3):
        take(trajectory, ask(step))
    assert trajectory.goes_on_with(ask(3))
    assert not trajectory.goes_on_with(ask(0))
    assert not trajectory.goes_on_with(ask(4))
    assert not trajectory.goes_on_with(ask(3, games=3))


def test_who_asks_is_answered_before_a_rollout_that_waits_is_learnt_from(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as actor:
        source = central(learner)
        source._whole.append(Played("actor.1", empty_rollout(STEPS, 2, OBSERVED)))
        answer = actor.ask(question(2), meta={"half": 0, "step": 0})
        comes(learner, 1)
        played = source.next(10)
        assert played is not None
        assert played.actor == "actor.1"
        assert answer is not None
        assert set(answer.wait(PATIENCE_S) or {}) == {"actions"}


def test_many_actors_do_not_play_faster_than_is_learnt(endpoint: str, players: Players) -> None:
    halves, steps = 10, 2
    with Learner(endpoint) as learner:
        for number in range(halves // 2):
            players.start(f"actor.{number}", 2)
        source = Central(learner, judge, steps, np.random.default_rng(1))
        found, most = 0, 0
        deadline = time.monotonic() + PATIENCE_S
        for _ in range(60):
            while sum(each.waiting for each in learner.actors) < halves:  # so does everybody while one is learnt from
                assert time.monotonic() < deadline
                time.sleep(0.001)
            found += source.next(1.0) is not None
            most = max(most, len(source._whole))
    players.join()
    assert found > 50
    assert most <= steps + halves
