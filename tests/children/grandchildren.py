"""Forks two children that ignore SIGTERM, and stays; with `leave` it ends at once, with code 0, and they stay."""

import os
import signal
import sys
import time

for _ in range(2):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"deaf\n")  # in one piece: two of them write
        while True:
            time.sleep(600)
if "leave" not in sys.argv:
    while True:
        time.sleep(600)
