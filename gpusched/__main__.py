"""`gpusched`, and `python -m gpusched`: what a person's directories hold is imported last, if nobody else has it."""

import sys

from gpusched.interpreter import own_modules_first

own_modules_first()
from gpusched.cli.main import main  # noqa: E402 (after the line above)
from gpusched.linux.interrupt import keep_interrupts  # noqa: E402

keep_interrupts()  # of the process, which is the command line's own

if __name__ == "__main__":
    sys.exit(main())
