"""The start of a guard (see guard.py), by its command line.

`python -m gpusched.supervisor [--attached=IN,OUT,ERR] [--files=SOFT,HARD] [--environment] JOBDIR NONCE`. IN, OUT and
ERR are open descriptors, the streams of an attached command. SOFT and HARD: how many files it may open.
"""

import re
import resource
import sys

from gpusched.interpreter import own_modules_first

own_modules_first()
from gpusched.supervisor.guard import guard  # noqa: E402 (after the line above)

options = {argument for argument in sys.argv[1:] if argument.startswith("--")}
operands = [argument for argument in sys.argv[1:] if argument not in options]
attached = [found for option in options if (found := re.fullmatch(r"--attached=(\d+),(\d+),(\d+)", option))]
files = [found for option in options if (found := re.fullmatch(r"--files=(-?\d+),(-?\d+)", option))]
if len(operands) != 2 or options - {found[0] for found in (*attached, *files)} - {"--environment"}:  # noqa: PLR2004
    usage = "[--attached=IN,OUT,ERR] [--files=SOFT,HARD] [--environment] JOBDIR NONCE"
    print(f"usage: python -m gpusched.supervisor {usage}", file=sys.stderr)
    sys.exit(2)
for found in files:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(found[1]), int(found[2])))
streams = (int(attached[0][1]), int(attached[0][2]), int(attached[0][3])) if attached else None
sys.exit(guard(*operands, streams=streams, environment="--environment" in options))
