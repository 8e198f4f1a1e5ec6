"""`gpusched status --watch` in a real terminal: it draws in place, answers keys, and gives the terminal back."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import GIVEN_BACK, TAKEN, Terminal
from tests.stand_in.library import FOUR_V100, SIXTY_FOUR, StandIn, StandInHost

WATCH = [sys.executable, "-m", "gpusched", "status", "--watch", "--interval", "0.3"]


def watching(host: StandInHost, state_dir: Path, **size: int) -> Terminal:
    env = host.env | {"GPUSCHED_STATE_DIR": str(state_dir), "TERM": "xterm-256color"}
    return Terminal(WATCH, env, **size)


@pytest.fixture
def watched(stand_in: StandIn, tmp_path: Path) -> Iterator[Terminal]:
    terminal = watching(stand_in.host(SIXTY_FOUR), tmp_path)
    terminal.see(TAKEN)
    terminal.see("lines 1-39 of ")
    yield terminal
    terminal.close()


def test_q_quits_and_the_terminal_is_as_it_was(watched: Terminal) -> None:
    watched.type(b"q")
    assert watched.end() == 0


def test_control_c_quits_and_the_terminal_is_as_it_was(watched: Terminal) -> None:
    watched.type(b"\x03")
    assert watched.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(watched: Terminal, number: int) -> None:
    watched.process.send_signal(number)
    assert watched.end() == -number


def test_a_frame_is_drawn_over_the_last_one_without_clearing_the_screen(watched: Terminal) -> None:
    frame = watched.see("\x1b[?2026l") + watched.see("\x1b[?2026l")
    assert "\x1b[?2026h\x1b[H" in frame
    assert "\x1b[2J" not in frame


def test_it_is_drawn_anew_for_a_new_size(watched: Terminal) -> None:
    watched.resize(80, 20)
    watched.see("lines 1-19 of ")
    watched.resize(200, 60)
    watched.see("lines 1-59 of ")


def test_keys_move_through_what_does_not_fit(watched: Terminal) -> None:
    watched.type(b"jj")
    watched.see("lines 3-41 of ")
    watched.type(b"\x1b[A")
    watched.see("lines 2-40 of ")
    watched.type(b"G")
    watched.see("no process uses a device")
    watched.type(b"g")
    watched.see("lines 1-39 of ")


def test_it_can_be_suspended_and_brought_back(watched: Terminal) -> None:
    watched.process.send_signal(signal.SIGTSTP)
    watched.see(GIVEN_BACK)
    os.waitid(os.P_PID, watched.process.pid, os.WSTOPPED | os.WNOWAIT)
    watched.process.send_signal(signal.SIGCONT)
    watched.see(TAKEN)
    watched.see("lines 1-39 of ")
    watched.type(b"q")
    assert watched.end() == 0


def test_keys_are_answered_while_nvml_does_not(stand_in: StandIn, tmp_path: Path) -> None:
    terminal = watching(
        stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * sleep 600\n", driver_patience_s=6), tmp_path
    )
    try:
        terminal.see("reading the devices")
        terminal.type(b"q")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_a_driver_that_never_answers_is_told(stand_in: StandIn, tmp_path: Path) -> None:
    terminal = watching(
        stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * sleep 600\n", driver_patience_s=6), tmp_path
    )
    try:
        terminal.see("waiting for NVML")
        terminal.see("NVML did not answer within 6 s")
        terminal.type(b"q")
        assert terminal.end() == 0
    finally:
        terminal.close()
