import pytest

from gpusched.execution.spec import Backoff
from gpusched.model.status import ExitReason, exit_text
from gpusched.model.workload import Restart
from gpusched.supervisor.restart import delay_s, memory_advice, row_after, starts_again


def test_the_backoff_doubles_from_one_second_to_thirty() -> None:
    assert [delay_s(Backoff(), row) for row in (0, 1, 2, 3, 4, 5, 6, 1_000_000)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_sixty_stable_seconds_are_forgiven() -> None:
    assert [row_after(Backoff(), 4, ran) for ran in (0.0, 59.9, 60.0, 1e9)] == [4, 4, 0, 0]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (ExitReason(kind="completed"), "completed"),
        (ExitReason(kind="crashed", code=3), "crashed with code 3"),
        (ExitReason(kind="signalled", signal=11), "killed by SIGSEGV"),
        (ExitReason(kind="signalled", signal=40), "killed by signal 40"),
        (ExitReason(kind="oom", signal=9), "killed by the kernel because memory ran out (OOM)"),
        (ExitReason(kind="oom", code=1), "ran out of memory on its device"),
        (ExitReason(kind="oom", code=1, message="the host's memory"), "ran out of the host's memory"),
        (ExitReason(kind="overrun", message="uses 9 of its 5 MiB"), "stopped because it uses 9 of its 5 MiB"),
        (ExitReason(kind="spawn-failed", message="x: No such file"), "could not start: x: No such file"),
    ],
)
def test_an_exit_reason_is_told_in_words(reason: ExitReason, text: str) -> None:
    assert exit_text(reason) == text


def test_advice_is_given_to_those_that_lack_memory_and_to_no_other() -> None:
    assert "give actor more memory" in str(memory_advice(ExitReason(kind="oom", code=1), "actor"))
    assert "give actor more memory" in str(memory_advice(ExitReason(kind="overrun", message="x"), "actor"))
    assert "the host" in str(memory_advice(ExitReason(kind="oom", signal=9), "actor"))
    assert "the host" in str(memory_advice(ExitReason(kind="oom", code=1, message="the host's memory"), "actor"))
    assert memory_advice(ExitReason(kind="crashed", code=1), "actor") is None


def test_who_restarts_on_a_signal_takes_an_exit_code_as_the_last_word() -> None:
    rule = Restart(policy="on-signal", max=2)
    assert starts_again(rule, ExitReason(kind="signalled", signal=9), 0, 0)
    assert starts_again(rule, ExitReason(kind="oom", signal=9), 0, 1)
    assert not starts_again(rule, ExitReason(kind="signalled", signal=9), 2, 0)
    for reason in (ExitReason(kind="crashed", code=1), ExitReason(kind="oom", code=1), ExitReason(kind="completed")):
        assert not starts_again(rule, reason, 0, 1)
