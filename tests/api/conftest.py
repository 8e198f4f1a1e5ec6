import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.session import Session
from tests.cli.command import Command
from tests.patience import until


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command line, and in this process the API, with the same directories."""
    one = Command(tmp_path)
    for name in set(os.environ) - set(one.env):
        if not name.startswith("PYTEST_"):
            monkeypatch.delenv(name)
    for name, value in one.env.items():
        monkeypatch.setenv(name, value)
    yield one
    until(lambda: "executor-" not in str(threading.enumerate()), "executors have ended")
    one.end()


@pytest.fixture
def session(command: Command) -> Iterator[Session]:
    """A Python of its own that uses the API, beside the same command line."""
    one = Session(command)
    yield one
    one.close()
