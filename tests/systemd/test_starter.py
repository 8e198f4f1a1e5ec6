import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from gpusched.daemon.starter import fork_servers, starter
from gpusched.errors import HostFault
from gpusched.execution.start import cancel_start, prepare, spawn
from tests.patience import until
from tests.supervisor.host import Host
from tests.supervisor.specs import replica

LIMIT = (1024, 4096)
AS_A_UNIT = {"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": str(os.getpid())}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.end()


def with_manager(folder: Path, script: str) -> Mapping[str, str]:
    """The environment of a unit whose `systemd-run` is this script."""
    path = folder / "systemd-run"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return AS_A_UNIT | {"PATH": f"{folder}:/usr/bin:/bin", "SECRET": "the daemon's own"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"INVOCATION_ID": "1"},
        {"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": "1"},
        {"SYSTEMD_EXEC_PID": str(os.getpid())},
    ],
)
def test_a_daemon_that_no_unit_started_starts_guards_itself(environ: dict[str, str]) -> None:
    start = starter(environ, LIMIT)
    assert isinstance(start, partial)
    assert (start.func, start.keywords) == (spawn, {"files": LIMIT})


def test_only_a_daemon_that_no_unit_started_forks_guards_which_would_be_of_its_unit() -> None:
    assert list(fork_servers({}, (1024, 4096)))
    assert not list(fork_servers(AS_A_UNIT, (1024, 4096)))


def test_a_manager_that_refuses_is_told_with_the_fix(host: Host, tmp_path: Path) -> None:
    one = host.prepare(replica("learner.0"))
    nonce = prepare(one.directory, one.directory.read_spec())
    start = starter(with_manager(tmp_path, "echo Failed to connect to bus: No medium found >&2; exit 1"), LIMIT)
    with pytest.raises(HostFault, match="starts no unit for it: Failed to connect to bus") as error:
        start(one.directory, nonce, {})
    assert "loginctl enable-linger" in error.value.hint


def test_a_host_without_systemd_run_is_told(host: Host, tmp_path: Path) -> None:
    one = host.prepare(replica("learner.0"))
    nonce = prepare(one.directory, one.directory.read_spec())
    with pytest.raises(HostFault, match="systemd-run: No such file or directory"):
        starter(AS_A_UNIT | {"PATH": str(tmp_path)}, LIMIT)(one.directory, nonce, {})


def test_a_manager_that_hangs_holds_the_daemon_up_once_and_not_for_each_job(host: Host, tmp_path: Path) -> None:
    start = starter(with_manager(tmp_path, f"echo asked >>{tmp_path}/asked; exec sleep 600"), LIMIT)
    jobs = [host.prepare(replica("learner.0")) for _ in range(3)]
    for one in jobs:
        with pytest.raises(HostFault, match="starts no unit for it"):
            start(one.directory, prepare(one.directory, one.directory.read_spec()), {})
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_nothing_of_the_environment_is_in_an_argument_or_reaches_the_manager(host: Host, tmp_path: Path) -> None:
    one = host.prepare(replica("learner.0"))
    nonce = prepare(one.directory, one.directory.read_spec())
    start = starter(with_manager(tmp_path, f'env >{tmp_path}/env; echo "$@" >{tmp_path}/argv'), LIMIT)
    assert start(one.directory, nonce, {"TOKEN": "of the job"}) is None
    assert "SECRET" not in (tmp_path / "env").read_text()
    assert "TOKEN" not in (tmp_path / "argv").read_text() + (tmp_path / "env").read_text()
    assert (one.directory.path / "environ").stat().st_mode & 0o777 == 0o600


def test_a_guard_that_a_slow_manager_starts_after_the_attempt_was_called_off_starts_nothing(
    host: Host, tmp_path: Path
) -> None:
    """The command after `--` is run at last, as the manager would."""
    late = (
        f'while [ "$1" != -- ]; do shift; done; shift; (until [ -e {tmp_path}/go ]; do sleep 0.01; done; exec "$@") &'
    )
    one = host.prepare(replica("learner.0", ("sleep", "600")))
    nonce = prepare(one.directory, one.directory.read_spec())
    start = starter(with_manager(tmp_path, f"{late}\necho $! >{tmp_path}/pid; exit 1"), LIMIT)
    with pytest.raises(HostFault):
        start(one.directory, nonce, host.environ(one))
    assert cancel_start(one.directory)
    (tmp_path / "go").touch()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the late guard has ended")
    assert one.status.supervisor_pid is None
    assert not one.pids()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
