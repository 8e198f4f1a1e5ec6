"""Where an actor of averaging does not begin."""

from pathlib import Path

import pytest

from gpusched.channel import LearnerGone
from workloads.averaging import actor, learner


def launch(monkeypatch: pytest.MonkeyPatch, run_dir: Path, **said: str) -> None:
    """Make this process an actor of a learner on another host."""
    same = {"JOB": "averaging-1", "ROLE": "actor", "ROLE_COUNT": "2", "RUN_DIR": str(run_dir)}
    for name, value in {**same, "ENDPOINT": "tcp://127.0.0.1:1", **said}.items():
        monkeypatch.setenv(f"GPUSCHED_{name}", value)


@pytest.mark.parametrize("side", [learner, actor])
def test_outside_a_launch_it_says_how_to_launch_it(side: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSCHED_JOB", raising=False)
    with pytest.raises(SystemExit, match="gpusched launch"):
        side.main()  # type: ignore[attr-defined]


def test_an_actor_of_another_host_is_no_part_of_the_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launch(monkeypatch, tmp_path, RANK="1000", REPLICA="actor.0", JOINED="lab2")
    with pytest.raises(SystemExit, match="takes none of other hosts"):
        actor.main()


def test_an_actor_of_another_node_of_the_launch_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def begin(_: object) -> None:
        raise LearnerGone("it began")

    launch(monkeypatch, tmp_path, RANK="1", REPLICA="actor.1", INCARNATION="1")
    monkeypatch.setattr(actor, "limit_memory", lambda: None)
    monkeypatch.setattr(actor, "Training", begin)
    actor.main()
