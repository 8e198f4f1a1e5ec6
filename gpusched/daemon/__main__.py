"""`python -m gpusched.daemon [--background DESCRIPTOR]`: be the daemon.

With `--background` it leaves the process that started it, and answers that over a pipe: `ready`, `another`, or an error
as JSON (see control/client.py).
"""

import os
import sys

if len(sys.argv) not in (1, 3) or sys.argv[1:2] not in ([], ["--background"]):
    print("usage: python -m gpusched.daemon [--background DESCRIPTOR]", file=sys.stderr)
    sys.exit(2)
if len(sys.argv) == 3 and os.fork():  # noqa: PLR2004
    os._exit(0)  # so that init is the daemon's parent, and no other process has to wait for it

from gpusched.interpreter import own_modules_first

own_modules_first()
from gpusched.daemon.main import main  # noqa: E402 (after the line above)

sys.exit(main(os.fdopen(int(sys.argv[2]), "wb") if len(sys.argv) == 3 else None))  # noqa: PLR2004
