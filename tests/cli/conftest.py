from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    one = Command(tmp_path)
    yield one
    one.end()
