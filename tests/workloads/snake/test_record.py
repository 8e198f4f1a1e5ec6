"""The record of a run, the spectator's game, and the pictures made from them."""

import json
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image

from gpusched.channel import Progress
from workloads.common.record import read_rows
from workloads.snake.checkpoint import Counts
from workloads.snake.pictures import save_curve, save_game
from workloads.snake.record import Record
from workloads.snake.rules import SIDE
from workloads.snake.spectator import Spectator
from workloads.snake.vector import VectorSnake


def test_a_report_tells_steps_speed_and_score_of_all_and_of_each(run_dir: Path) -> None:
    ticks = count(step=2)
    record = Record(run_dir, Counts(network="small"), lambda: float(next(ticks)))
    record.count("actor.0", 100, [1, 3])
    record.count("actor.1", 300)
    counts = Counts(network="small", steps=400, games=2, seconds=2.0)
    record.report(counts.steps, 0.25)
    record.add_line(counts)
    record.add_line(counts)
    record.close()
    line = json.loads((run_dir / "progress.jsonl").read_text())
    assert (line["step"], line["steps_per_s"], line["score"], line["done"]) == (400, 200, 2, 0.25)
    assert line["replicas"] == {"actor.0": {"steps_per_s": 50, "score": 2}, "actor.1": {"steps_per_s": 150}}
    assert read_rows(run_dir / "scores.csv") == [(2.0, 400, 2, 2.0, 200.0)]
    assert list((run_dir / "tensorboard").iterdir())


def test_a_restarted_learner_drops_what_it_will_learn_again(run_dir: Path) -> None:
    (run_dir / "scores.csv").write_text(
        "seconds,steps,games,mean_score,steps_per_s\n1.0,100,5,0.5,50\n2.0,200,9,0.7,50\n3.0,300,20,0.9,"
    )
    Record(run_dir, Counts(network="small", steps=150), lambda: 0.0).close()
    assert read_rows(run_dir / "scores.csv") == [(1.0, 100, 5, 0.5, 50.0)]


def test_without_a_whole_thousand_games_no_target_is_reached(run_dir: Path) -> None:
    record = Record(run_dir, Counts(network="small"), lambda: 0.0)
    record.count("actor.0", 1, [50] * 999)
    assert (record.score, record.settled_score) == (50, 0)
    record.count("actor.0", 1, [50])
    assert record.settled_score == 50
    record.close()


def test_a_curve_is_drawn_from_no_one_and_many_rows(tmp_path: Path) -> None:
    rows = [(float(second), second * 1000, second, second / 10, 1000.0) for second in range(1, 50)]
    for number in (0, 1, 49):
        save_curve(rows[:number], tmp_path / "curve.png", "Snake")
        with Image.open(tmp_path / "curve.png") as image:
            assert image.size == (960, 540)
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_a_game_is_drawn_frame_by_frame(tmp_path: Path) -> None:
    games = VectorSnake(1, 0)
    frames = [games.frames[0]] + [games.step(np.array([action]))[0][0] for action in (1, 0, 0, 3)]
    save_game(frames, tmp_path / "game.gif", "paths")
    with Image.open(tmp_path / "game.gif") as image:
        assert (image.format, getattr(image, "n_frames", 1), image.info["loop"]) == ("GIF", 5, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["game.gif"]


HEAD_COLOUR, FRUIT_COLOUR = (255, 214, 90), (240, 85, 75)


def test_a_long_game_is_drawn_by_some_of_its_frames_and_the_last(tmp_path: Path) -> None:
    games = VectorSnake(1, 0)
    frames = [np.roll(games.frames[0], number, axis=1) for number in range(1000)]
    save_game(frames, tmp_path / "game.gif", "paths")
    save_game(frames[-1:], tmp_path / "last.gif", "paths")
    with Image.open(tmp_path / "game.gif") as image, Image.open(tmp_path / "last.gif") as last:
        count = getattr(image, "n_frames", 1)
        assert 200 <= count <= 241
        image.seek(count - 1)
        below_the_caption = (0, 24, *image.size)
        shown, expected = (np.asarray(one.convert("RGB").crop(below_the_caption)) for one in (image, last))
        np.testing.assert_array_equal(shown, expected)
        assert {HEAD_COLOUR, FRUIT_COLOUR} <= set(map(tuple, shown.reshape(-1, 3).tolist()))


def test_a_spectator_is_shown_whole_games_and_only_while_watching(tmp_path: Path) -> None:
    frames = np.zeros((4, SIDE, SIDE), np.uint8)
    ended = np.array([False, True, False, True])
    idle = Spectator(Progress(tmp_path))
    idle.see(frames, ended)
    assert idle.waiting == 0
    (tmp_path / "watched").touch()
    spectator = Spectator(Progress(tmp_path), seconds_a_frame=60)
    spectator.see(frames, ended)
    assert spectator.waiting in {1, 2}, "the two frames of the game that was seen from its start; one may be shown"
    spectator.see(frames, ended)
    assert spectator.waiting in {1, 2}, "no further game before that one is shown"
