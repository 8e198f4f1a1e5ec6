"""A short run of the random trouble in chaos.py, which also runs by itself for as many rounds as one likes."""

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.daemon.chaos import DEVICES, Chaos
from tests.stand_in.library import StandIn


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [11, 12])
def test_whatever_is_killed_no_share_is_given_twice_and_no_job_is_lost_or_run_twice(
    tmp_path: Path, stand_in: StandIn, seed: int
) -> None:
    host = stand_in.host(f"gpus {DEVICES}\nset * used 0\n")
    command = Command(tmp_path, host.variables)
    chaos = Chaos(command, seed)
    for _ in range(25):
        chaos.round()
    chaos.finish()
