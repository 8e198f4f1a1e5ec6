from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.daemons import Daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that is not started yet; whatever runs at the end of the test is killed."""
    one = Daemon(tmp_path)
    yield one
    one.end()
