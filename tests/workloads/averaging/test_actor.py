"""Where an actor of averaging does not begin."""

from pathlib import Path

import pytest

from workloads.averaging import actor, learner


@pytest.mark.parametrize("side", [learner, actor])
def test_outside_a_launch_it_says_how_to_launch_it(side: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSCHED_JOB", raising=False)
    with pytest.raises(SystemExit, match="gpusched launch"):
        side.main()  # type: ignore[attr-defined]


def test_an_actor_of_another_host_is_no_part_of_the_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "JOB": "averaging-1",
        "ROLE": "actor",
        "RANK": "1000",
        "ROLE_COUNT": "2",
        "REPLICA": "actor.0",
        "RUN_DIR": str(tmp_path),
        "ENDPOINT": "tcp://127.0.0.1:1",
        "JOINED": "lab2",
    }.items():
        monkeypatch.setenv(f"GPUSCHED_{name}", value)
    with pytest.raises(SystemExit, match="takes none of other hosts"):
        actor.main()
