"""Takes its stdin as its terminal and runs a command in the foreground; one that is halted goes on at once.

It leads a session, and ends as the command did.
"""

import fcntl
import os
import signal
import sys
import termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
while True:
    _, status = os.waitpid(child, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    print("halted", flush=True)
    os.killpg(child, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(status))
