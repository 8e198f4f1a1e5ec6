from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A place to start real jobs; none of their processes is left after the test."""
    found = Host(tmp_path)
    yield found
    found.end()
