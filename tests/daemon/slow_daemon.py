"""A real daemon that takes a second to begin: what started it is back by then, and waits for its answer.

With SLOW_AT=lock it has no lock during that second, or, with MAY_BEGIN, until there is that file.
"""

import os
import sys
import time
from pathlib import Path

from gpusched.daemon.devices import Devices
from gpusched.daemon.main import main

reader, writer = os.pipe()
before_its_lock = os.environ.get("SLOW_AT") == "lock"
if os.fork():
    os.close(writer)
    if not before_its_lock:
        os.read(reader, 1)  # until it has its lock
    os._exit(0)


honest = Devices.await_first


def slow(self: Devices, now: float) -> None:
    os.close(writer)
    time.sleep(1.0)
    honest(self, now)


if before_its_lock and "MAY_BEGIN" in os.environ:
    while not Path(os.environ["MAY_BEGIN"]).exists():
        time.sleep(0.01)
elif before_its_lock:
    time.sleep(1.0)
else:
    Devices.await_first = slow  # type: ignore[method-assign]
sys.exit(main(os.fdopen(int(sys.argv[1]), "wb")))
