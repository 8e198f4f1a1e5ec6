"""What a network sees of a board, beside plain definitions of it, on boards of short and of long snakes."""

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from workloads.common.weights import Weights
from workloads.snake.inputs import Around, AroundAndPaths, OnePlane, Paths, SeenFromHead, Whole
from workloads.snake.networks import build, judge, layout_of, reader
from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, SIDE, Frames, Hunger
from workloads.snake.settings import Inputs, Network
from workloads.snake.symmetry import SYMMETRIES, turned, turned_each
from workloads.snake.vector import VectorSnake

Cell = tuple[int, int]
MIDDLE = 5
PLANE = 11 * 11
LINES = slice(2 * PLANE, 2 * PLANE + 22)
COUNTS = slice(LINES.stop, LINES.stop + 4)
"""Length and hunger over 50, and what both are beyond 50 over 25."""
FACTS = slice(COUNTS.stop, COUNTS.stop + 16)
"""Of each move: deadly, region over 50, as large as the snake, tip reachable."""


def board(head: tuple[int, int], fruit: tuple[int, int], tail: dict[tuple[int, int], int]) -> Frames:
    frame = np.zeros((1, SIDE, SIDE), np.uint8)
    frame[0][head], frame[0][fruit] = HEAD, FRUIT
    for cell, life in tail.items():
        frame[0][cell] = life
    return frame


def board_of(body: list[Cell], fruit: Cell | None) -> Frames:
    """A frame [10, 10] of a snake, head first."""
    frame = np.zeros((SIDE, SIDE), np.uint8)
    for age, cell in enumerate(body):
        frame[cell] = len(body) - age if age else HEAD
    if fruit is not None:
        frame[fruit] = FRUIT
    return frame


def neighbours(cell: Cell) -> list[Cell | None]:
    """The cells that the four moves lead to, None for a wall."""
    places = [(cell[0] + down, cell[1] + right) for down, right in MOVES]
    return [at if 0 <= at[0] < SIDE and 0 <= at[1] < SIDE else None for at in places]


def walk(random: np.random.Generator, length: int) -> list[Cell]:
    """A random snake of up to `length` cells; it is shorter where it has shut itself in."""
    body = [(int(random.integers(SIDE)), int(random.integers(SIDE)))]
    while len(body) < length:
        free = [cell for cell in neighbours(body[-1]) if cell is not None and cell not in body]
        if not free:
            break
        body.append(free[random.integers(len(free))])
    return body


def rows(length: int) -> list[Cell]:
    """A snake row by row, there and back: it can be as long as the board is large."""
    cells = [(row, column if row % 2 else SIDE - 1 - column) for row in range(SIDE) for column in range(SIDE)]
    return cells[:length][::-1]


def boards() -> Frames:
    """Boards as they are played, of random snakes of all lengths, and of snakes in rows, turned in all ways."""
    random, games, made = np.random.default_rng(5), VectorSnake(100, 1), []
    for _ in range(20):
        games.step(random.integers(len(MOVES), size=100))
    for number in range(400):
        body = walk(random, int(random.integers(3, CELLS))) if number % 4 else rows(3 + number // 4 % 97)
        if len(body) < 3:
            continue
        body = body[:: int(random.choice([-1, 1]))]
        free = [divmod(cell, SIDE) for cell in range(CELLS) if divmod(cell, SIDE) not in body]
        made.append(board_of(body, free[random.integers(len(free))] if free else None))
    frames = np.stack(made)
    parts = [turned(frames[at::SYMMETRIES], np.zeros(1, np.int64), at)[0] for at in range(SYMMETRIES)]
    return np.concatenate([games.frames, *parts])


def filled(start: Iterable[Cell], free: set[Cell]) -> set[Cell]:
    """All cells that can be reached from `start` through `free`, those of `start` among them."""
    found, edge = set(start), list(start)
    while edge:
        for cell in neighbours(edge.pop()):
            if cell in free and cell not in found:
                found.add(cell)
                edge.append(cell)
    return found


def facts_of(frame: Frames) -> NDArray[np.float64]:
    """Where each move leads [4 facts, 4 moves], cell by cell; the tip by a flood that begins at the tail's end."""
    at = {int(number): divmod(cell, SIDE) for cell, number in enumerate(frame.ravel()) if number}
    length = len([number for number in at if number != FRUIT])
    free = {divmod(cell, SIDE) for cell in range(CELLS) if frame.ravel()[cell] in (0, FRUIT)}
    near_tip = filled([at[1], at[2]], free)
    result = np.zeros((4, len(MOVES)))
    for move, cell in enumerate(neighbours(at[HEAD])):
        if cell is None or (cell not in free and cell != at[1]):
            result[0, move] = 1
            continue
        region = filled([cell], free)
        result[1:, move] = len(region) / 50, len(region) >= length, cell in near_tip
    return result


def rolled(frame: Frames) -> NDArray[np.float64]:
    """Fruit, wall and tail [11, 11, 3] of the board and one line of wall, rolled until the head is in the middle."""
    wall = HEAD - 1
    torus = np.pad(frame, ((0, 1), (0, 1)), constant_values=wall)
    row, column = np.argwhere(torus == HEAD)[0]
    torus = np.roll(torus, (MIDDLE - row, MIDDLE - column), axis=(0, 1))
    tail = np.where((torus > 0) & (torus < wall), 0.5 + torus / 40, 0)
    return np.stack([torus == FRUIT, torus == wall, tail], axis=-1).astype(np.float64)


def paths(frames: Frames, hunger: Hunger | None = None) -> NDArray[np.float32]:
    hunger = np.zeros(len(frames), np.uint8) if hunger is None else hunger
    return np.asarray(Paths()(AroundAndPaths()(frames, hunger)))


def test_the_original_tells_head_fruit_tail_and_free_cells_apart() -> None:
    plane = np.asarray(OnePlane()(Whole()(board((2, 3), (7, 7), {(2, 2): 2, (2, 1): 1}))))[0, :, :, 0]
    assert (plane[2, 3], plane[7, 7], plane[0, 0]) == (3, -3, 0)
    assert 0 < plane[2, 1] < plane[2, 2] < 3


def test_the_frame_is_seen_from_the_head() -> None:
    seen = np.asarray(SeenFromHead()(Around()(board((9, 4), (9, 6), {(9, 3): 2, (8, 3): 1})))).reshape(11, 11, 3)
    fruit, wall, tail = (seen[:, :, plane] for plane in range(3))
    middle = 5
    assert np.argwhere(fruit).tolist() == [[middle, middle + 2]]
    assert np.argwhere(tail).tolist() == [[middle - 1, middle - 1], [middle, middle - 1]]
    assert tail[middle, middle - 1] > tail[middle - 1, middle - 1] > 0
    assert wall[middle + 1].all(), "the wall is right below a head in the last row"
    assert wall.sum() == 11 + 11 - 1


def test_the_view_holds_every_cell_once_wherever_the_head_is() -> None:
    observe, read = Around(), SeenFromHead()
    for at in range(SIDE * SIDE):
        frame = np.arange(1, SIDE * SIDE + 1, dtype=np.uint8).reshape(1, SIDE, SIDE)
        frame[0, at // SIDE, at % SIDE] = HEAD
        seen = np.asarray(read(observe(frame))).reshape(-1, 3)
        assert np.unique(seen[:, 2]).size == SIDE * SIDE
        assert not seen[60].any(), "the head itself needs no mark: it is always in the middle"


def test_the_frame_is_the_board_rolled_until_the_head_is_in_the_middle() -> None:
    frames = boards()
    expected = [rolled(frame).ravel() for frame in frames]
    np.testing.assert_allclose(np.asarray(SeenFromHead()(Around()(frames))), expected, rtol=1e-6)


def test_the_boards_of_these_tests_have_long_snakes_and_moves_of_all_kinds() -> None:
    frames = boards()
    lengths = ((frames > 0) & (frames < FRUIT)).sum(axis=(1, 2))
    assert len(frames) > 400
    assert (lengths > 60).sum() > 40
    assert lengths.max() >= 97
    facts = np.stack([facts_of(frame) for frame in frames])
    deadly, _, enough, tip = (facts[:, fact] == 1 for fact in range(4))
    for kind in (enough & tip, enough & ~tip, ~enough & tip, ~enough & ~tip & ~deadly):
        assert kind.sum() > 30


def test_where_each_move_leads_is_what_a_flood_cell_by_cell_finds() -> None:
    frames = boards()
    found = paths(frames)[:, FACTS].reshape(-1, 4, len(MOVES))
    np.testing.assert_allclose(found, [facts_of(frame) for frame in frames], rtol=1e-6)


@pytest.mark.parametrize("symmetry", range(SYMMETRIES))
def test_a_row_from_wall_to_wall_parts_the_board(symmetry: int) -> None:
    body = [(5, column) for column in range(SIDE)]
    (frame,), (up, right, down, left) = turned(board_of(body, (0, 0))[None], np.arange(4), symmetry)
    facts = paths(frame[None])[0, FACTS].reshape(4, len(MOVES))
    assert facts[0, [up, right, down, left]].tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(facts[1, [up, down]], [50 / 50, 40 / 50])
    assert facts[2, [up, down]].tolist() == [1, 1]
    assert facts[3, [up, down]].tolist() == [1, 1], "the tail's end is beside both parts"


def test_the_head_may_follow_the_end_of_the_tail_and_take_the_last_free_cell() -> None:
    ring = board_of([(4, 4), (4, 5), (5, 5), (5, 4)], (0, 0))
    _, right, down, _ = paths(ring[None])[0, FACTS].reshape(4, len(MOVES)).T
    np.testing.assert_allclose(down, [0, 97 / 50, 1, 1])
    assert right.tolist() == [1, 0, 0, 0]
    cycle = [(row, 0) for row in range(SIDE - 1, -1, -1)] + [(0, column) for column in range(1, SIDE)]
    for row in range(1, SIDE):
        cycle += [(row, column) for column in (range(9, 0, -1) if row % 2 else range(1, SIDE))]
    last = board_of(cycle[:-1], cycle[-1])
    facts = paths(last[None])[0, FACTS].reshape(4, len(MOVES)).T
    expected = np.array([[1, 0, 0, 0], [0, 1 / 50, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(facts, expected)


def test_board_and_walls_are_those_of_the_frame() -> None:
    frames = boards()
    found, expected = paths(frames), np.stack([rolled(frame) for frame in frames])
    np.testing.assert_allclose(found[:, :PLANE], expected[..., 0].reshape(-1, PLANE))
    np.testing.assert_allclose(found[:, PLANE : 2 * PLANE], expected[..., 2].reshape(-1, PLANE), rtol=1e-6)
    walls = found[:, LINES]
    np.testing.assert_array_equal(walls[:, :11, None].astype(bool) | walls[:, None, 11:].astype(bool), expected[..., 1])


def test_length_and_hunger_are_seen_up_to_fifty_and_beyond() -> None:
    frames = np.stack([board_of(rows(length), None) for length in (3, 50, 75, 97)])
    found = paths(frames, np.array([0, 99, 50, 25], np.uint8))[:, COUNTS]
    expected = np.array([[0.06, 0, 0, 0], [1, 1.98, 0, 1.96], [1.5, 1, 1, 0], [1.94, 0.5, 1.88, 0]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_network_that_sees_paths_plays_by_its_hunger() -> None:
    games, model = VectorSnake(4, 1), build("small", "paths")
    model.jit_compile = False  # XLA takes seconds
    logits = [judge(model, games.frames, np.full(4, hunger, np.uint8))[0] for hunger in (0, 0, 90)]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[2] - logits[0]).min() > 1e-6


@pytest.mark.parametrize("symmetry", range(SYMMETRIES))
def test_a_turned_board_is_seen_as_the_board_with_its_cells_and_moves_turned(symmetry: int) -> None:
    frames, hunger = boards(), np.arange(len(boards()), dtype=np.uint8)
    images, goes = turned(frames, np.arange(len(MOVES)), symmetry)
    before, after = paths(frames, hunger), paths(images, hunger)
    places, _ = turned(np.arange(PLANE).reshape(1, 11, 11), goes, symmetry)  # type: ignore[arg-type]
    for plane in (slice(0, PLANE), slice(PLANE, 2 * PLANE)):
        np.testing.assert_allclose(after[:, plane], before[:, plane][:, places.ravel()])
    np.testing.assert_array_equal(after[:, COUNTS], before[:, COUNTS])
    one, other = (seen[:, FACTS].reshape(-1, 4, len(MOVES)) for seen in (before, after))
    np.testing.assert_array_equal(other[:, :, goes], one)


@pytest.mark.parametrize("network", [("original", "frame"), ("small", "frame"), ("small", "paths")])
def test_what_is_observed_of_turned_boards_is_what_is_observed_turned(network: tuple[Network, Inputs]) -> None:
    frames, model = boards(), build(*network)
    symmetries = np.arange(len(frames)) % SYMMETRIES
    hunger = np.arange(len(frames), dtype=np.uint8)
    images = [
        turned(frame[None], np.zeros(1, np.int64), int(at))[0] for frame, at in zip(frames, symmetries, strict=True)
    ]
    before, after = (judge(model, seen, hunger).observations for seen in (frames, np.concatenate(images)))
    assert before.shape == (len(frames), layout_of(model).size)
    found, _ = turned_each(before, np.zeros(len(frames), np.int64), symmetries, layout_of(model))
    np.testing.assert_array_equal(found, after)


@pytest.mark.parametrize("network", [("original", "frame"), ("small", "frame"), ("small", "paths")])
def test_who_reads_observations_says_what_the_network_says_of_the_boards(network: tuple[Network, Inputs]) -> None:
    games, model = VectorSnake(16, 1), build(*network)
    part, judged = reader(model), judge(model, games.frames, games.hunger)
    for _ in range(2):
        logits, values = part(judged.observations)
        np.testing.assert_allclose(np.asarray(logits), judged.logits, atol=0.02 * judged.logits.std())
        np.testing.assert_allclose(np.asarray(values)[:, 0], judged.values, atol=0.02 * judged.values.std())
        Weights(model).set({name: array * 2 for name, array in Weights(model).get().items()})
        judged = judge(model, games.frames, games.hunger)
