"""Copies of a state directory that were taken while it was in use, as a backup takes them: a daemon starts on each."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon

MANY = 10


@pytest.fixture
def busy(daemon: Daemon) -> Iterator[Daemon]:
    """A daemon whose jobs start and end all the while."""
    daemon.start()
    over = threading.Event()

    def submit() -> None:
        while not over.is_set():
            daemon.ended(daemon.shell("exit 0"), daemon.shell("exit 3"))

    thread = threading.Thread(target=submit)
    thread.start()
    yield daemon
    over.set()
    thread.join()


def copied(source: Path, target: Path) -> None:
    """Copy what can be copied; files come and go meanwhile."""
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        if not all("No such file" in why for _, _, why in error.args[0]):
            raise


@pytest.mark.slow
def test_a_daemon_starts_on_every_copy_of_a_busy_state_directory(busy: Daemon, tmp_path: Path) -> None:
    busy.ended(busy.submit("true"))
    for number in range(MANY):
        home = tmp_path / f"copy-{number}"
        home.mkdir()
        copied(busy.state, home / "state")
    for number in range(MANY):
        copy = Daemon(tmp_path / f"copy-{number}")
        try:
            copy.start()
            assert copy.job("run-1").state is JobState.SUCCEEDED
            assert copy.ended(copy.submit("true"))[0].state is JobState.SUCCEEDED
        finally:
            copy.end()
