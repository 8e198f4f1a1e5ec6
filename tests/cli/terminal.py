"""A pseudo-terminal with a program in it, as a person has it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from tests.patience import PATIENCE_S
from tests.stand_in.library import ROOT

TAKEN, GIVEN_BACK = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A pseudo-terminal with the program `argv` in it, which leads its session."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, columns: int = 100, lines: int = 40) -> None:
        self.outside, self.inside = pty.openpty()
        self.before = termios.tcgetattr(self.inside)
        self.seen = ""
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            argv,
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
            env={"TERM": "xterm-256color", **env},
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
