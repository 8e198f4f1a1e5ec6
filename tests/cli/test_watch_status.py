"""`gpusched status --watch` in a real terminal: it draws in place, answers keys, and gives the terminal back."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stand_in.library import FOUR_V100, ROOT, SIXTY_FOUR, StandIn, StandInHost

TAKEN, GIVEN_BACK = "\x1b[?1049h", "\x1b[?1049l"
PATIENCE_S = 15.0


class Terminal:
    """A pseudo-terminal with `gpusched status --watch` in it."""

    def __init__(self, host: StandInHost, state_dir: Path, *, columns: int = 100, lines: int = 40) -> None:
        self.outside, self.inside = pty.openpty()
        self.before = termios.tcgetattr(self.inside)
        self.seen = ""
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpusched", "status", "--watch", "--interval", "0.3"],
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
            env=host.env | {"GPUSCHED_STATE_DIR": str(state_dir), "TERM": "xterm-256color"},
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (no thread here)
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.outside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.outside, keys)

    def see(self, words: str) -> str:
        """Wait until the program has written `words` after what was seen before, and return what it wrote."""
        until = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            assert time.monotonic() < until, f"not seen: {words!r} in {self.seen[-2000:]!r}"
            if select.select([self.outside], [], [], 0.2)[0]:
                self.seen += os.read(self.outside, 65536).decode(errors="replace")
        shown, _, self.seen = self.seen.partition(words)
        return shown + words

    def end(self) -> int:
        """Wait for the program's end, and return its exit code; the terminal must be as it was."""
        self.see(GIVEN_BACK)
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self.inside) == self.before
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.outside)
        os.close(self.inside)


@pytest.fixture
def watched(stand_in: StandIn, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(stand_in.host(SIXTY_FOUR), tmp_path)
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
    terminal = Terminal(stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * sleep 60\n"), tmp_path)
    try:
        terminal.see("reading the devices")
        terminal.type(b"q")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_a_driver_that_never_answers_is_told(stand_in: StandIn, tmp_path: Path) -> None:
    terminal = Terminal(stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * sleep 60\n"), tmp_path)
    try:
        terminal.see("waiting for NVML")
        terminal.see("NVML did not answer within 2 s")
        terminal.type(b"q")
        assert terminal.end() == 0
    finally:
        terminal.close()
