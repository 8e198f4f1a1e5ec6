"""Two hosts, and a learner's keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.joining.keys import make_server_key, new_key
from tests.network.hosts import Host, Relay, joined_by_a_relay, joined_by_veth


@pytest.fixture
def cable() -> Iterator[tuple[Host, Host]]:
    with joined_by_veth() as hosts:
        yield hosts


@pytest.fixture
def relayed() -> Iterator[tuple[Host, Host, Relay]]:
    with joined_by_a_relay() as hosts:
        yield hosts


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory of keys with one for whoever joins: join.key."""
    directory = tmp_path / "keys"
    make_server_key(directory, "test-1")
    new_key(directory, "join")
    return directory
