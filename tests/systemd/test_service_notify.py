import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.daemon.service_notify import Notifier
from tests.patience import PATIENCE_S


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A real socket in the place of a service manager's, and the name by which NOTIFY_SOCKET would give it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@gpusched-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(name.replace("@", "\0", 1))
        one.settimeout(PATIENCE_S)
        yield one, name


def heard(manager: socket.socket) -> list[str]:
    """All that has been said so far."""
    manager.setblocking(False)
    said = []
    with contextlib.suppress(BlockingIOError):
        while True:
            said.append(manager.recv(4096).decode())
    return said


def test_the_manager_hears_of_start_status_and_end(manager: tuple[socket.socket, str]) -> None:
    one, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.status("3 jobs run,\n2 wait")
    notifier.status("3 jobs run,\n2 wait")
    notifier.stopping()
    assert heard(one) == ["READY=1", "STATUS=3 jobs run, 2 wait", "STOPPING=1"]


def test_the_watchdog_is_fed_at_half_its_period_however_often_the_loop_turns(
    manager: tuple[socket.socket, str],
) -> None:
    one, name = manager
    now = 100.0
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(environ, lambda: now)
    for _ in range(61):
        notifier.ping()
        now += 1.0
    assert heard(one) == ["WATCHDOG=1"] * 5
    assert notifier.longest_sleep_s == 7.5


@pytest.mark.parametrize(
    "watchdog",
    [{}, {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}],
)
def test_without_a_watchdog_of_this_process_there_is_nothing_to_feed(
    manager: tuple[socket.socket, str], watchdog: dict[str, str]
) -> None:
    one, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name, **watchdog})
    notifier.ping()
    assert heard(one) == []
    assert notifier.longest_sleep_s is None


def test_a_daemon_that_a_command_inside_a_unit_started_does_not_speak_in_the_name_of_that_unit(
    manager: tuple[socket.socket, str],
) -> None:
    one, name = manager
    Notifier({"NOTIFY_SOCKET": name, "SYSTEMD_EXEC_PID": "1"}).ready()
    assert heard(one) == []


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_a_manager_that_is_not_there_changes_nothing(environ: dict[str, str]) -> None:
    notifier = Notifier(environ | {"WATCHDOG_USEC": "1000000"})
    notifier.ready()
    notifier.ping()
    notifier.stopping()


def test_a_manager_that_does_not_read_holds_nothing_up(manager: tuple[socket.socket, str]) -> None:
    one, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    for number in range(5000):
        notifier.status(f"busy {number}")
    assert heard(one)[0] == "STATUS=busy 0"
