"""A replica that goes on until it is stopped, and says that it was."""

import signal
import sys
import time

print("here", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    time.sleep(0.1)  # a signal that comes just before a long one is handled after it only
