"""Starts two children in sessions of their own, as torchrun does: `elastic.py forward|leave COMMAND...`.

At SIGTERM it sends each SIGTERM and waits for their ends (`forward`), or ends at once, and they stay (`leave`).
"""

import os
import signal
import subprocess
import sys
import time
from types import FrameType

mode, *command = sys.argv[1:]
children = [subprocess.Popen([*command, str(number)], start_new_session=True) for number in (1, 2)]


def end(_number: int, _frame: FrameType | None) -> None:
    if mode == "forward":
        for child in children:
            os.killpg(child.pid, signal.SIGTERM)
    if mode == "leave":
        os._exit(1)


signal.signal(signal.SIGTERM, end)
for child in children:
    while child.poll() is None:
        time.sleep(0.05)  # a signal that comes just before a long wait is handled after it only
sys.exit(1)
