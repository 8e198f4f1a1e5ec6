"""gpusched.api.daemon, keys, checks and catalog: what their commands do, as values."""

from pathlib import Path

import pytest

from gpusched.api import catalog, checks, daemon, keys
from gpusched.errors import NoDaemon, NotFound, UsageError
from gpusched.joining.keys import make_server_key
from tests.cli.command import Command


@pytest.mark.usefixtures("command")
def test_the_daemon_is_started_once_answers_and_is_stopped() -> None:
    with pytest.raises(NoDaemon):
        daemon.state()
    with pytest.raises(NoDaemon):
        daemon.stop()

    assert daemon.start()
    assert not daemon.start()
    state = daemon.state()
    assert (state.running, state.queued, state.problems) == (0, 0, ())
    assert Path(state.socket).exists()
    with pytest.raises(UsageError):
        daemon.drain(99)

    daemon.stop()
    with pytest.raises(NoDaemon):
        daemon.state()


def test_keys_of_a_job_are_made_listed_and_revoked(command: Command) -> None:
    directory = command.state / "jobs" / "snake-1" / "keys"
    make_server_key(directory, "snake-1")

    made = keys.create("snake-1", "lab2")
    assert (made.job, made.name, made.revoked) == ("snake-1", "lab2", None)
    assert made.file == str(directory / "lab2.key")
    assert keys.list_keys() == keys.list_keys("snake-1") == (made,)
    assert (keys.job_ids(), keys.job_ids("run")) == (["snake-1"], [])

    revoked = keys.revoke("snake-1", "lab2")
    assert revoked.revoked is not None
    assert (revoked.file, Path(made.file).exists()) == (None, False)
    with pytest.raises(NotFound):
        keys.revoke("snake-1", "lab3")
    with pytest.raises(NotFound):
        keys.list_keys("../snake-1")


@pytest.mark.usefixtures("command")
def test_the_doctor_returns_findings_and_whether_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCHED_CONFIG", "/no/such/file.toml")

    diagnosis = checks.doctor()

    assert diagnosis.has_errors
    assert "settings" in {finding.check for finding in diagnosis.findings if finding.state == "error"}


def test_a_workload_is_written_once(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(command.home)

    written = catalog.new("mine")

    assert {file.name for file in written.folder.iterdir()} == set(written.files)
    assert catalog.workload_names("min") == ["mine"]
    with pytest.raises(UsageError):
        catalog.new("mine")
