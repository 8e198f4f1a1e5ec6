"""The first process of the soak's pid namespace: it starts the soak and reaps orphans; all processes end with it.

`unshare --pid --mount --kill-child` makes the namespace, so that no process and no mount stays behind, however it ends.
"""

import os
import signal
import sys

__all__ = ["main"]


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the soak, too
    child = os.posix_spawn(
        sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]], {**os.environ, "SOAK_ALONE": "1"},
        setsigdef=[signal.SIGINT],
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGINT))
    while True:
        try:
            pid, status = os.wait()
        except InterruptedError:
            continue
        if pid == child:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
