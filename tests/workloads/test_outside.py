"""Where learners and actors of workloads do not begin."""

import json
from pathlib import Path

import pytest

from gpusched.channel import LearnerGone
from workloads.averaging import actor as averaging_actor
from workloads.averaging import learner as averaging_learner
from workloads.cartpole import actor as cartpole_actor
from workloads.cartpole import learner as cartpole_learner
from workloads.mnist_towers import learner as towers_learner
from workloads.snake import actor as snake_actor
from workloads.snake import learner as snake_learner

SIDES = [
    *(averaging_learner, averaging_actor, cartpole_learner, cartpole_actor),
    *(snake_learner, snake_actor, towers_learner),
]


@pytest.mark.parametrize("side", SIDES)
def test_outside_a_launch_it_says_how_to_launch_it(side: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSCHED_JOB", raising=False)
    with pytest.raises(SystemExit, match="gpusched launch"):
        side.main()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("side", "settings"), [(averaging_actor, {}), (cartpole_actor, {"scheme": "average"})])
def test_an_actor_of_another_host_has_no_part_in_rounds(
    side: object, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "JOB": "rounds-1",
        "ROLE": "actor",
        "RANK": "1000",
        "ROLE_COUNT": "2",
        "REPLICA": "actor.0",
        "RUN_DIR": str(tmp_path),
        "ENDPOINT": "tcp://127.0.0.1:1",
        "JOINED": "lab2",
        "SETTINGS": json.dumps(settings),
    }.items():
        monkeypatch.setenv(f"GPUSCHED_{name}", value)
    with pytest.raises(SystemExit, match="takes none of other hosts"):
        side.main()  # type: ignore[attr-defined]


def test_an_actor_of_another_node_of_the_launch_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def begin(_: object) -> None:
        raise LearnerGone("it began")

    said = {
        "JOB": "averaging-1",
        "ROLE": "actor",
        "RANK": "1",
        "ROLE_COUNT": "2",
        "REPLICA": "actor.1",
        "INCARNATION": "1",
    }
    for name, value in {**said, "RUN_DIR": str(tmp_path), "ENDPOINT": "tcp://127.0.0.1:1"}.items():
        monkeypatch.setenv(f"GPUSCHED_{name}", value)
    monkeypatch.setattr(averaging_actor, "limit_memory", lambda: None)
    monkeypatch.setattr(averaging_actor, "Training", begin)
    averaging_actor.main()
