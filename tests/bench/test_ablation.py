"""The ablation changes what it names: nothing that has another name by now, and no program that it does not find."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from bench.ablation.__main__ import VARIANTS, changed_workload, without_texts
from bench.ablation.changed import CHANGES, Change
from workloads.snake import networks
from workloads.snake.rules import FRUIT, HEAD
from workloads.snake.vector import VectorSnake


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_is_there_and_is_another_then(name: str) -> None:
    change = CHANGES[name]
    before = getattr(change.holder, change.name)
    try:
        change.make()
        assert getattr(change.holder, change.name) is change.value is not before
    finally:
        setattr(change.holder, change.name, before)


def test_what_has_another_name_by_now_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Change(networks, "_gone", None).make()


def test_runs_are_of_other_code_when_a_number_changes_and_not_when_a_text_does() -> None:
    code = 'RATE = 1\n"""What it is."""\n\n\ndef learn():\n    """Learn."""\n    return RATE\n'
    same = '# A comment.\nRATE = 1\n\n\ndef learn():\n    """Learn better."""\n\n    return RATE\n'
    assert without_texts(code) == without_texts(same)
    assert without_texts(code) != without_texts(code.replace("RATE = 1", "RATE = 2"))


def test_both_programs_of_a_workload_have_the_change(tmp_path: Path) -> None:
    assert {variant.change for variant in VARIANTS} == {"", *CHANGES}
    found = tomllib.loads(changed_workload(tmp_path, "tip").read_text())
    commands = [role["command"][-4:] for role in found["roles"].values()]
    assert sorted(commands) == [["-m", "bench.ablation.changed", role, "tip"] for role in ("actor", "learner")]


def test_half_of_the_games_begin_where_another_is(monkeypatch: pytest.MonkeyPatch) -> None:
    change = CHANGES["curriculum"]
    monkeypatch.setattr(change.holder, change.name, change.value)
    snakes, random = VectorSnake(64, 0), np.random.default_rng(0)
    for _ in range(300):
        frames, _, _, _ = snakes.step(random.integers(4, size=64))
        assert ((frames == HEAD).sum(axis=(1, 2)) == 1).all()
        assert ((frames == FRUIT).sum(axis=(1, 2)) == 1).all()
        tails = ((frames > 0) & (frames < HEAD)).sum(axis=(1, 2))
        assert (tails == snakes._length - 1).all()


@pytest.mark.parametrize("name", ["convolution", "blocked", "wide"])
def test_a_changed_network_judges_boards(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change = CHANGES[name]
    monkeypatch.setattr(change.holder, change.name, change.value)
    judged = networks.judge(networks.build("small", "frame"), VectorSnake(2, 0).frames)
    assert judged.logits.shape == (2, 4)
