"""What tests that launch workloads share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.launched import Launches


@pytest.fixture
def launches() -> Iterator[Launches]:
    """Starts launches, and ends with the test what is left of them."""
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp") as path:
        made = Launches(Path(path))
        yield made
        made.end()
