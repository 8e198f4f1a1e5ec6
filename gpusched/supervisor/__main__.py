"""`python -m gpusched.supervisor JOBDIR`: run the job that the directory describes (see guard.py)."""

import sys

from gpusched.supervisor.guard import guard

if len(sys.argv) != 2:  # noqa: PLR2004
    print("usage: python -m gpusched.supervisor JOBDIR", file=sys.stderr)
    sys.exit(2)
sys.exit(guard(sys.argv[1]))
