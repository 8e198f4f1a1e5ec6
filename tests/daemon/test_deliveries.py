"""Children that deliver notifications, when there is none, or it ends: on a table of the test's."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gpusched.daemon.deliveries import Deliveries
from gpusched.daemon.delivery_process import delivery_spawner
from gpusched.notifications.destination import Answer, Request, resolve
from gpusched.notify_settings import NotifySettings
from gpusched.settings import load_settings
from gpusched.storage.event_table import EventTable
from gpusched.storage.store import Store
from tests.patience import until


class Spawn:
    """Starts children that answer for so many events and end; with `problem` there is none."""

    def __init__(self) -> None:
        self.answers, self.problem = 0, False
        self.asked: list[int] = []

    def __call__(self, request: Request) -> tuple[int, int]:
        self.asked.append(len(request.parcels))
        if self.problem:
            raise OSError(11, "Resource temporarily unavailable")
        inner, outer = os.pipe()
        answers = (Answer(id=parcel.id) for parcel in request.parcels[: self.answers])
        os.write(outer, b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers))
        os.close(outer)
        return 0, inner


SETTINGS = NotifySettings(command="true")


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventTable]:
    store = Store.open(tmp_path / "gpusched.db")
    table = EventTable(store.events, SETTINGS, lambda: 1000.0)
    for number in range(20):
        table.note_drain(f"GPU {number}", f"GPU-{number}", "broken")
    saved(table)
    yield table
    store.close()


def saved(events: EventTable) -> None:
    events.write()
    events.saved()


def turns(events: EventTable, deliveries: Deliveries, enough: Callable[[], object]) -> None:
    def turn() -> object:
        if deliveries.step(0.0):
            saved(events)
        return enough()

    until(turn, "the deliveries are over")


def waits(events: EventTable) -> bool:
    return not events.due((), 1) and events.next_due_in(()) is not None


@pytest.mark.parametrize("problem", [True, False], ids=["not-started", "no-answer"])
def test_where_no_child_can_be_started_or_answers_all_of_its_events_have_failed(
    events: EventTable, problem: bool
) -> None:
    spawn = Spawn()
    spawn.problem = problem
    turns(events, Deliveries(events, spawn), lambda: waits(events))
    assert spawn.asked == [20], "one child, not one for each event"


def test_what_a_child_left_out_that_has_answered_is_given_to_the_next_at_once(events: EventTable) -> None:
    spawn = Spawn()
    spawn.answers = 5
    turns(events, Deliveries(events, spawn), lambda: waits(events))
    assert spawn.asked == [20, 14, 8, 2], "each child delivers five, and the next of its events has failed"


def test_a_unit_of_systemd_has_the_proxies_of_the_daemon_and_no_command_line_shows_them(tmp_path: Path) -> None:
    typed, given = tmp_path / "typed", tmp_path / "given"
    program = tmp_path / "systemd-run"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$https_proxy" "$@" > {typed}; cat > {given}\n')
    program.chmod(0o700)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": str(os.getpid())}
    environ |= {"https_proxy": "http://me:password@proxy", "HOME": str(tmp_path)}
    spawn = delivery_spawner(load_settings(environ), environ, (64, 64))
    destination = resolve("command", SETTINGS)
    assert destination is not None
    pid, pipe = spawn(Request(destination=destination, parcels=(), limit_s=1.0))
    os.waitpid(pid, 0)
    os.close(pipe)
    proxy, *words = typed.read_text().splitlines()
    assert (proxy, "--user" in words) == ("", True)
    assert not any("password" in word for word in words)
    request = msgspec.msgpack.decode(given.read_bytes(), type=Request)
    assert request.environ == {"https_proxy": "http://me:password@proxy"}
