"""`gpusched`, and `python -m gpusched`: what a person's directories hold is imported last, if nobody else has it."""

import signal
import sys

from gpusched.interpreter import own_modules_first

own_modules_first()
_prints_a_traceback = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _prints_a_traceback:  # amid its imports, Ctrl-C ends this command as it ends any other
    signal.signal(signal.SIGINT, signal.SIG_DFL)
from gpusched.cli.main import main  # noqa: E402 (after the lines above)
from gpusched.linux.interrupt import keep_interrupts  # noqa: E402

if _prints_a_traceback:
    signal.signal(signal.SIGINT, signal.default_int_handler)
keep_interrupts()  # of the process, which is the command line's own

if __name__ == "__main__":
    sys.exit(main())
