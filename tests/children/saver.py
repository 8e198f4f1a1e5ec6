"""Saves a checkpoint when it is asked to end, as long as it takes: until the file `release` is there.

Its directory tells how far it is: `ready-N` with its pid, `asked-N` with the signal, `saved-N`. A second signal aborts
what it does, and leaves `second-N`; with `patient` it ignores one.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

place, number = Path(sys.argv[1]), sys.argv[2]


def mark(what: str, text: object) -> None:
    (place / f"{what}-{number}.new").write_text(str(text))
    (place / f"{what}-{number}.new").replace(place / f"{what}-{number}")


def save(received: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN if "patient" in sys.argv else abort)
    mark("asked", received)
    while not (place / "release").exists():
        time.sleep(0.01)
    mark("saved", received)
    os._exit(0)


def abort(received: int, _frame: FrameType | None) -> None:
    mark("second", received)
    os._exit(99)


for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, save)
mark("ready", os.getpid())
while True:
    time.sleep(0.05)  # a signal that comes just before a long one is handled after it only
