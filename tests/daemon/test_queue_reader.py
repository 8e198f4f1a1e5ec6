"""Who follows the queue asks the daemon after each change of it, and seldom while it is as before."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpusched.execution import queue_answer
from gpusched.execution.queue_answer import QueueReader
from tests.daemon.daemons import Daemon
from tests.patience import until

HELD = "held; let it go with: gpusched release run-1"


def test_a_queue_that_does_not_change_is_not_asked_for_again(daemon: Daemon) -> None:
    daemon.start().submit("true", hold=True)
    read = QueueReader(daemon.settings)
    until(lambda: read() is read(), "an answer serves twice")
    assert [job.id for job in read().jobs] == ["run-1"]


def test_each_change_is_in_the_next_answer(daemon: Daemon) -> None:
    read = QueueReader(daemon.start().settings)
    for number in range(1, 6):
        until(lambda: read() is read(), "an answer serves twice")
        daemon.submit("true", hold=True)
        assert len(read().jobs) == number


def test_an_answer_is_kept_once_the_daemon_has_had_time_to_find_why_jobs_wait(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.start().submit("true", hold=True)
    clock: Any = SimpleNamespace(monotonic=lambda: clock.now, now=1000.0)
    monkeypatch.setattr(queue_answer, "time", clock)
    monkeypatch.setattr(queue_answer, "queue_stamp", lambda _: clock.stamp)
    read = QueueReader(daemon.settings)
    for clock.stamp in (1, 2):
        changed = clock.now
        kept = {}
        for clock.now in (changed, changed + 0.1, changed + 2.9, changed + 3.0, changed + 7.9, changed + 8.0):
            before = read._answer
            kept[round(clock.now - changed, 1)] = read() is before
        assert kept == {0.0: False, 0.1: False, 2.9: False, 3.0: False, 7.9: True, 8.0: False}


def test_a_daemon_that_has_gone_is_noticed_at_once(daemon: Daemon) -> None:
    daemon.start().submit("true", hold=True)
    read = QueueReader(daemon.settings)
    until(lambda: read() is read(), "an answer serves twice")
    daemon.kill()
    assert not read().listens
    daemon.start()
    until(lambda: [job.why for job in read().jobs] == [HELD], "the next daemon's answer")
