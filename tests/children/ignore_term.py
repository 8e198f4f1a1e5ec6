"""Ignores SIGTERM, says so, and stays."""

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(600)
