"""What a run saves and goes on from, and when it is done."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusched.channel import Batch
from tests.workloads.launched import progress_in
from tests.workloads.rounds import after
from workloads.cartpole import evaluate, learner
from workloads.cartpole import run as runs
from workloads.cartpole.memory import Memory
from workloads.cartpole.record import Counts
from workloads.cartpole.run import CartPole
from workloads.cartpole.settings import Settings
from workloads.common.checkpoint import UnusableWeights, write_checkpoint
from workloads.common.record import read_rows
from workloads.common.rounds import Contribution, packed


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """What greedy games give instead of played ones, by their seed."""
    given = {evaluate.CHOOSES: [9], evaluate.JUDGES: [9], evaluate.TELLS: [9]}

    def greedy_returns(_weights: object, _games: int, seed: int) -> NDArray[np.int64]:
        return np.array(given[seed])

    monkeypatch.setattr(runs, "greedy_returns", greedy_returns)
    return given


def changed(run: CartPole, number: float) -> None:
    """As if learning had brought these weights."""
    run.training.weights.set_flat(np.full(run.training.weights.size, number, np.float32))


def best(path: Path) -> set[float]:
    with np.load(path / "weights.npz") as file:
        return set(file["worths/bias"].tolist())


def test_it_is_solved_when_both_sets_of_games_say_so(tmp_path: Path, returns: dict[int, list[int]]) -> None:
    run = CartPole(Settings(target=475), tmp_path)
    for chooses, judges, solved in [
        ([450] * 100, [500] * 100, False),
        ([450, 500] * 50, [500] * 100, False),  # 475 in the mean, but by luck
        ([480] * 100, [470] * 100, False),
        ([480] * 100, [475] * 100, True),
    ]:
        returns |= {evaluate.CHOOSES: chooses, evaluate.JUDGES: judges}
        run.judge(0.0)
        assert (run.counts.solved, run.done) == (solved, solved)
    run.record.close()


def test_the_best_weights_are_kept_and_those_that_solved_it_rank_first(
    tmp_path: Path, returns: dict[int, list[int]]
) -> None:
    run = CartPole(Settings(target=475), tmp_path)
    for number, score in [(1, 300), (2, 200)]:
        changed(run, number)
        returns[evaluate.CHOOSES] = [score]
        run.judge(0.0)
    run.save()
    assert (best(tmp_path), run.counts.best) == ({1}, 300)
    changed(run, 3)
    returns |= {evaluate.CHOOSES: [490], evaluate.JUDGES: [100]}
    run.judge(0.0)
    changed(run, 4)
    returns |= {evaluate.CHOOSES: [480], evaluate.JUDGES: [480]}
    run.judge(0.0)
    run.save()
    assert best(tmp_path) == {4}
    run.record.close()


@pytest.mark.parametrize("limits", [{"steps": 100}, {"minutes": 0.5}, {}])
def test_a_run_ends_by_its_limits_or_goes_on(limits: dict[str, Any], tmp_path: Path) -> None:
    run = CartPole(Settings(target=0, **{"minutes": 0, **limits}), tmp_path)
    ends = []
    for steps, seconds in [(99, 29.0), (100, 30.0)]:
        run.counts.steps, run.counts.seconds, run.counts.best = steps, seconds, 500.0
        ends.append(run.done)
    assert ends == [False, bool(limits)]
    run.ask_to_stop()
    assert run.done
    run.record.close()


def test_a_run_goes_on_from_what_was_saved_and_drops_what_was_written_after_it(
    tmp_path: Path, returns: dict[int, list[int]]
) -> None:
    former = CartPole(Settings(), tmp_path)
    for number in (1, 2, 3):
        changed(former, number)
        former.counts.steps, former.counts.updates = 100 * number, number
        returns[evaluate.CHOOSES] = [50 - number]
        former.judge(0.5)
        if number == 2:
            former.save()
    former.record.close()
    assert [row[1] for row in read_rows(tmp_path / "scores.csv")] == [100, 200, 300]
    later = CartPole(Settings(), tmp_path)
    assert (later.counts.steps, later.counts.updates, later.counts.best) == (200, 2, 49)
    assert set(later.training.weights.get_flat()) == {2}
    assert [row[1:] for row in read_rows(tmp_path / "scores.csv")] == [(100, 1, 0.5, 49), (200, 2, 0.5, 48)]
    later.save()
    later.record.close()
    assert best(tmp_path) == {1}


def test_an_option_that_means_nothing_to_the_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="--plays goes with --scheme average, not central"):
        Settings(plays=4).check()
    Settings(scheme="average", plays=4).check()
    Settings().check()


def test_the_end_tells_what_the_best_weights_are_worth_in_games_that_decided_nothing(
    tmp_path: Path, returns: dict[int, list[int]]
) -> None:
    run = CartPole(Settings(), tmp_path)
    returns[evaluate.TELLS] = [100, 300]
    run.finish()
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert (found["games"], found["mean"], found["deviation"], found["least"], found["most"]) == (2, 200, 100, 100, 300)
    assert (tmp_path / "learning_curve.png").exists()


def test_saved_weights_that_are_damaged_or_of_another_network_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.npz").write_text("weights")
    with pytest.raises(UnusableWeights, match="holds no weights that this workload has saved"):
        CartPole(Settings(), tmp_path)
    write_checkpoint(tmp_path / "weights.npz", {"training/network/0": np.zeros(3)}, Counts())
    with pytest.raises(UnusableWeights, match="network/0 is missing or has another shape"):
        CartPole(Settings(), tmp_path)


def test_a_batch_that_holds_no_transitions_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, memory = CartPole(Settings(), tmp_path), Memory(10)
    learner.remember(run, memory, Batch(arrays={}, actor="actor.1", version=1, meta={}, seq=1))
    assert "a batch of actor.1 is left out: observations is missing" in capsys.readouterr().err
    assert (run.counts.steps, memory.enough) == (0, False)
    run.record.close()


@pytest.mark.usefixtures("returns")
def test_what_a_round_leaves_out_makes_no_actor_faster(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CartPole(Settings(scheme="average"), run_dir)
    monkeypatch.setattr(run, "keep", lambda _note: None)  # so that the only report is the one at the end

    def sent(rank: int, score: float) -> Batch:
        part = Contribution(run.training.weights.get_flat(), 10, 0.5, score)
        arrays, meta = packed(part, 1, rank, 2)
        return Batch(arrays=arrays, actor=f"actor.{rank}", version=1, meta=dict(meta), seq=1)

    batches = sent(0, 20), sent(0, 20), sent(1, 30), sent(0, 20)  # as a learner that was restarted gets them
    after(run, *batches)
    run.finish()
    (replicas,) = [line["replicas"] for line in progress_in(run_dir) if "replicas" in line]
    assert {name: numbers["score"] for name, numbers in replicas.items()} == {"actor.0": 20, "actor.1": 30}
    assert replicas["actor.0"]["steps_per_s"] == replicas["actor.1"]["steps_per_s"] > 0


def test_saved_weights_are_evaluated_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = CartPole(Settings(), tmp_path)
    run.save()
    run.record.close()
    monkeypatch.setattr("sys.argv", ["evaluate", "--weights", str(tmp_path / "weights.npz"), "--games", "7"])
    evaluate.main()
    assert "over 7 games" in capsys.readouterr().out
    write_checkpoint(tmp_path / "weights.npz", {"line/kernel": np.zeros(1)}, Counts())
    with pytest.raises(SystemExit):
        evaluate.main()
    assert "holds no weights of this network: hidden_1/kernel is missing" in capsys.readouterr().err
