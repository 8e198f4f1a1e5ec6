import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusched.execution.directory import JobDirectory, create
from gpusched.model.status import JobState, JobStatus
from gpusched.supervisor.events import Tick, Transition
from gpusched.supervisor.machine import Machine
from gpusched.supervisor.recorder import BootClock, Recorder
from gpusched.supervisor.usage_meter import UsageMeter
from tests.supervisor.leasing import NOBODY
from tests.supervisor.specs import job, replica


class HandClock(BootClock):
    """A clock that goes by hand."""

    def __init__(self) -> None:
        self.moment = 100.0

    def now(self) -> float:
        return self.moment

    def unix(self, moment: float) -> float:
        return 1_000_000.0 + moment


def test_a_status_is_saved_on_change_and_at_most_twenty_times_a_second(tmp_path: Path) -> None:
    directory, clock = create(tmp_path, "snake"), HandClock()
    spec = job(replica("part.0"))
    recorder, machine = Recorder(directory, spec, clock, UsageMeter(directory.path)), Machine(spec)
    due = [recorder.due]
    assert recorder.save(machine)
    due.append(recorder.due)
    assert due == [0.0, None], "at once, and then nothing to do while nothing changes"
    for instruction in machine.handle(Tick(now=clock.now())):
        if isinstance(instruction, Transition):
            recorder.note(instruction)
    assert recorder.due == 100.05
    clock.moment = recorder.due
    assert recorder.save(machine)
    status = directory.read_status()
    assert status is not None
    assert (status.state, status.replicas[0].since) == (JobState.STARTING, 1_000_100.0)


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    directory, clock = create(tmp_path, "snake"), HandClock()
    spec = job(replica("part.0"))
    recorder, machine = Recorder(directory, spec, clock, UsageMeter(directory.path)), Machine(spec)
    directory.events.mkdir()
    for instruction in machine.handle(Tick(now=clock.now())):
        if isinstance(instruction, Transition):
            recorder.note(instruction)
    assert recorder.save(machine), "the status does not wait for the events"
    due = recorder.due
    assert due == 101.0
    directory.events.rmdir()
    assert recorder.save(machine)
    assert recorder.due is None
    assert len(directory.events.read_text().splitlines()) == 2
    status = directory.read_status()
    assert status is not None
    assert "events.jsonl: not a file of ours, but a directory" in str(status.message)


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """Be somebody whom the mode of a file holds off, in a directory of theirs."""
    before = os.geteuid()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if before == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(before)


def test_the_status_does_not_wait_for_events_that_may_not_be_written() -> None:
    with ordinary_user() as state:
        directory, clock = create(state, "snake"), HandClock()
        spec = job(replica("part.0"))
        recorder, machine = Recorder(directory, spec, clock, UsageMeter(directory.path)), Machine(spec)
        directory.events.touch(mode=0)
        recorder.remark("job", "noticed", "something")
        assert recorder.save(machine), "the status is on disk"
        status = directory.read_status()
        assert status is not None
        assert "events.jsonl: Permission denied" in str(status.message)
        directory.events.chmod(0o600)
        assert recorder.save(machine)
        assert "something" in directory.events.read_text()


def test_the_clock_knows_unix_time() -> None:
    clock = BootClock()
    before = clock.now()
    assert clock.now() >= before
    assert clock.unix(before) > 1_600_000_000


@pytest.mark.parametrize("instead", [None, os.mkfifo], ids=["removed", "a-pipe"])
def test_a_status_that_is_replaced_as_soon_as_it_is_written_is_written_again(
    tmp_path: Path, instead: Callable[[Path], None] | None
) -> None:
    class Replaced(JobDirectory):
        def write_status(self, status: JobStatus) -> os.stat_result:
            written = super().write_status(status)
            self.status.unlink()
            if instead is not None:
                instead(self.status)
            return written

    directory, spec = Replaced(create(tmp_path, "snake").path), job(replica("part.0"))
    recorder, machine = Recorder(directory, spec, HandClock(), UsageMeter(directory.path)), Machine(spec)
    assert recorder.save(machine)
    assert recorder.due is None

    recorder.restore()

    assert recorder.due is not None
