from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stand_in.library import StandIn
from tests.web.server import Server


@pytest.fixture
def serve(tmp_path: Path, stand_in: StandIn) -> Iterator[Callable[..., Server]]:
    """Starts the server on a host with two GPUs, with these options."""
    made: list[Server] = []

    def start(*options: str, **places: Any) -> Server:
        made.append(Server(tmp_path, stand_in.host("gpus 2\nset 1 util 37\n"), *options, **places))
        return made[-1]

    yield start
    for one in made:
        one.end()
