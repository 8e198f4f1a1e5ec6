"""What a supervisor does at its end does not depend on whose process is above it by then."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpusched.model.status import JobState
from gpusched.supervisor import guard, runner
from tests.supervisor.leasing import NOBODY


@pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user")
def test_a_supervisor_whose_guard_is_gone_ends_in_order_below_a_process_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As init is, for a supervisor of a person whose guard was killed."""
    monkeypatch.setattr(runner, "Runner", lambda *_: SimpleNamespace(run=lambda: JobState.SUCCEEDED))
    child = os.fork()
    if child == 0:
        os.setsid()  # within a session SIGCONT may go to any process, kill(2)
        os.setuid(NOBODY)
        try:
            os._exit(guard._supervise(str(tmp_path), os.getpid(), (0, 1, 2)))
        except BaseException:  # noqa: BLE001 (the parent's test must not go on here)
            os._exit(99)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
