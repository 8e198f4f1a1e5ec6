"""Starts a daemon the old way, fork + setsid + fork, deaf to SIGTERM and SIGHUP; then stays, or ends with `leave`."""

import os
import signal
import sys
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("daemon", flush=True)
    while True:
        time.sleep(600)
os.wait()
if "leave" not in sys.argv:
    while True:
        time.sleep(600)
