"""Who follows the queue asks the daemon after each change of it, and seldom while it is as before."""

from gpusched.execution.queue_answer import QueueReader
from tests.daemon.daemons import Daemon
from tests.patience import until


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


def test_why_a_job_waits_comes_with_the_answer_after_its_first(daemon: Daemon) -> None:
    read = QueueReader(daemon.start().settings)
    daemon.submit("true", hold=True)
    first = read()
    assert read() is not first


def test_a_daemon_that_has_gone_is_noticed_at_once(daemon: Daemon) -> None:
    daemon.start().submit("true", hold=True)
    read = QueueReader(daemon.settings)
    until(lambda: read() is read(), "an answer serves twice")
    daemon.kill()
    assert not read().listens
    daemon.start()
    assert [job.why for job in read().jobs] == ["held; let it go with: gpusched release run-1"]
