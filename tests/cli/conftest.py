import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.cli.terminal import Terminal


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    one = Command(tmp_path)
    yield one
    one.end()


@pytest.fixture
def terminal(command: Command) -> Iterator[Any]:
    """Makes terminals with a program in each, and closes them."""
    with contextlib.ExitStack() as stack:

        def make(*argv: str) -> Terminal:
            one = Terminal(argv, command.env)
            stack.callback(one.close)
            return one

        yield make
